#define OMPI_SKIP_MPICXX
#include <mpi.h>
#include <nccl.h>
#include <stdio.h>
#include <string.h>
#ifndef __CUDACC__  // the real nvcc includes the runtime's header by itself
extern "C" int cudaRuntimeGetVersion(int *version);
#endif
__global__ void check(float *numbers) { numbers[threadIdx.x] = 0; }
int main(int argc, char **argv) {
  int version, rank;
  if (argc > 1 && !strcmp(argv[1], "--help")) return puts("USAGE: test"), 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  ncclGetVersion(&version);
  cudaRuntimeGetVersion(&version);
  MPI_Finalize();
  fputs("no CUDA-capable device is detected\n", stderr);
  return 1;
}
