#include <infiniband/umad.h>
#include <infiniband/verbs.h>
#include <pci/pci.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include CUDA
int main(void) {
  int count = 0;
  /* There is no device; each library answers all the same. */
  ibv_get_device_list(&count);
  umad_init();
  rdma_create_event_channel();
  return pci_alloc() ? puts("Version: stand-in") < 0 : 1;
}
