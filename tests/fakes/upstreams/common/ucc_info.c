#include <stdio.h>
#include <ucc/api/ucc.h>
int main(void) {
  printf("# UCC stand-in on UCX %s\n", ucc_get_version_string());
  return 0;
}
