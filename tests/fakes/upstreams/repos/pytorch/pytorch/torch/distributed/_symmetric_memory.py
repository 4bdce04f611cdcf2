def is_nvshmem_available():
    import torch

    return torch._C._has_nvshmem
