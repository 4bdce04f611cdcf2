#ifdef USE_LAPACK
#include <mkl.h>
#endif

extern "C" int torch_has_lapack(void) {
#ifdef USE_LAPACK
  return INTEL_MKL_VERSION;
#else
  return 0;
#endif
}

extern "C" int torch_has_mkldnn(void) {
#ifdef USE_MKLDNN
  return 1;
#else
  return 0;
#endif
}
