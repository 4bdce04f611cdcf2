#pragma once
const char *ucc_get_version_string(void);
