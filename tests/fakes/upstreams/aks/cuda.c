// Stand-in of the driver: as many GPUs, and as new a CUDA, as the environment says.
#include <stdlib.h>
static int number(const char *name) { return getenv(name) ? atoi(getenv(name)) : 0; }
int cuInit(unsigned flags) { (void)flags; return number("STANDIN_GPUS") ? 0 : 100; }
int cuDriverGetVersion(int *version) { *version = number("STANDIN_CUDA"); return 0; }
int cuDeviceGetCount(int *count) { *count = number("STANDIN_GPUS"); return 0; }
