/* Stand-in of UCC on the real UCX. */
#include <ucp/api/ucp.h>
const char *ucc_get_version_string(void) {
  return ucp_get_version_string();
}
