#include <infiniband/umad.h>
#include <infiniband/verbs.h>
#include <pci/pci.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include CUDA
int main(void) {
  int count = 0;
  ibv_free_device_list(ibv_get_device_list(&count));
  umad_init();
  rdma_destroy_event_channel(rdma_create_event_channel());
  struct pci_access *access = pci_alloc();
  pci_cleanup(access);
  return puts("Version: stand-in"), 0;
}
