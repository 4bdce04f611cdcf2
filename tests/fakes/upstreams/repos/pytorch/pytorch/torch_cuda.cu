extern "C" {
#include <cublas_v2.h>
#include <cuda_runtime.h>
#ifdef USE_CUDNN
#include <cudnn.h>
#endif
#ifdef USE_NCCL
#include <nccl.h>
#endif
#ifdef USE_MAGMA
#include <magma_v2.h>
#endif
#ifdef USE_CUSPARSELT
#include <cusparseLt.h>
#endif
#ifdef USE_UCC
#include <ucc/api/ucc.h>
#include <ucp/api/ucp.h>
#endif

__global__ void kernel(float *numbers) { numbers[threadIdx.x] += 1; }

int torch_has_ucc(void) {
#ifdef USE_UCC
  return ucc_get_version_string() != 0 && ucp_get_version_string() != 0;
#else
  return 0;
#endif
}

int torch_nccl_version(void) {
  int version = 0;
#ifdef USE_NCCL
  ncclGetVersion(&version);
#endif
  return version;
}

const char *torch_magma(void) {
#ifdef USE_MAGMA
  return magma_dgetrf_gpu();
#else
  return "";
#endif
}

int torch_has_cusparselt(void) {
#ifdef USE_CUSPARSELT
  return 1;
#else
  return 0;
#endif
}

int torch_touches(void) {
  int version;
  int sum = cublasGetVersion() + cudaRuntimeGetVersion(&version);
#ifdef USE_CUDNN
  sum += (int)cudnnGetVersion();
#endif
#ifdef USE_CUSPARSELT
  sum += cusparseLtInit(0);
#endif
  return sum;
}
}
