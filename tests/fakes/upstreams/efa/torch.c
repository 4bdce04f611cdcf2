#include <ucc/api/ucc.h>
extern int cudaRuntimeGetVersion(int *version);
extern int ncclGetVersion(int *version);
int torch_touches(void) {
  int cuda = 0, nccl = 0;
  cudaRuntimeGetVersion(&cuda);
  ncclGetVersion(&nccl);
  return cuda + nccl + (ucc_get_version_string() != 0);
}
