/* Stand-in of UCC on the real UCX. It refuses to start, so its other functions are never reached. */
#include "ucc.h"
#include <ucp/api/ucp.h>

const char *ucc_get_version_string(void) { return ucp_get_version_string(); }
const char *ucc_status_string(ucc_status_t status) { return status == UCC_OK ? "Success" : "Operation is not supported"; }
void ucc_lib_config_release(ucc_lib_config_h config) {}
void ucc_context_config_release(ucc_context_config_h config) {}

#define REFUSED(function) \
  ucc_status_t function { return UCC_ERR_NOT_SUPPORTED; }
REFUSED(ucc_lib_config_read(const char *prefix, const char *file, ucc_lib_config_h *config))
REFUSED(ucc_lib_config_modify(ucc_lib_config_h config, const char *name, const char *value))
REFUSED(ucc_init_version(unsigned major, unsigned minor, const ucc_lib_params_t *params, ucc_lib_config_h config, ucc_lib_h *lib))
REFUSED(ucc_lib_get_attr(ucc_lib_h lib, ucc_lib_attr_t *attributes))
REFUSED(ucc_finalize(ucc_lib_h lib))
REFUSED(ucc_context_config_read(ucc_lib_h lib, const char *file, ucc_context_config_h *config))
REFUSED(ucc_context_config_modify(ucc_context_config_h config, const char *component, const char *name, const char *value))
REFUSED(ucc_context_create(ucc_lib_h lib, const ucc_context_params_t *params, ucc_context_config_h config, ucc_context_h *context))
REFUSED(ucc_context_progress(ucc_context_h context))
REFUSED(ucc_context_destroy(ucc_context_h context))
REFUSED(ucc_team_create_post(ucc_context_h *contexts, uint32_t count, const ucc_team_params_t *params, ucc_team_h *team))
REFUSED(ucc_team_create_test(ucc_team_h team))
REFUSED(ucc_team_destroy(ucc_team_h team))
REFUSED(ucc_collective_init(ucc_coll_args_t *args, ucc_coll_req_h *request, ucc_team_h team))
REFUSED(ucc_collective_post(ucc_coll_req_h request))
REFUSED(ucc_collective_finalize(ucc_coll_req_h request))
