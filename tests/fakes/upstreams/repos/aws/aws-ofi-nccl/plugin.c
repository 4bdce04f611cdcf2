#include <hwloc.h>
#include <rdma/fabric.h>
#include <stdio.h>
int ncclNetPlugin_v10;
void initialize(void) {
  hwloc_topology_t topology;
  puts("NET/OFI Initializing aws-ofi-nccl " VERSION);
  if (fi_version() && !hwloc_topology_init(&topology)) hwloc_topology_destroy(topology);
}
