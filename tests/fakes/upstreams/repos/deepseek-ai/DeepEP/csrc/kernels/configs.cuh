#include <infiniband/mlx5dv.h>
#include <nvshmem.h>
