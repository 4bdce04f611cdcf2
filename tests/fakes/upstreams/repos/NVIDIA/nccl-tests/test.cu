#define OMPI_SKIP_MPICXX
#include <mpi.h>
#include <nccl.h>
#include <stdio.h>
#include <string.h>
#ifdef __CUDACC__  // the real nvcc, which includes the runtime's header by itself
static const char *devices() { int count; return cudaGetErrorString(cudaGetDeviceCount(&count)); }
#else
extern "C" int cudaRuntimeGetVersion(int *version);
static const char *devices() { return "no CUDA-capable device is detected"; }
#endif
__global__ void check(float *numbers) { numbers[threadIdx.x] = 0; }
// As the real one without a GPU (NVIDIA/nccl-tests at v2.18.3, src/common.cu:1245 and src/util.cu:515): the first rank says what
// is tested, each says what is wrong, and none ends MPI.
int main(int argc, char **argv) {
  int version, rank;
  if (argc > 1 && !strcmp(argv[1], "--help")) return puts("USAGE: test"), 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  ncclGetVersion(&version);
  cudaRuntimeGetVersion(&version);
  if (rank == 0) puts("# nThread 1 nGpus 1");
  printf("localhost: Test CUDA failure test.cu:%d '%s'\n", __LINE__, devices());
  return 1;
}
