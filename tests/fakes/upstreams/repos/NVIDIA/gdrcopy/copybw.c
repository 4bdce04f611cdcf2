#include <cuda.h>
#include <stdio.h>
#include <string.h>
#include "gdrapi.h"
int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "-h")) return puts("Usage: gdrcopy_copybw"), 0;
  return gdr_open() ? cuInit(0) : 1;
}
