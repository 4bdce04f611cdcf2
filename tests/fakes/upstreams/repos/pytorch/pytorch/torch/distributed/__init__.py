def is_available():
    return True


def is_gloo_available():
    return True


def is_nccl_available():
    import torch

    return bool(torch._library and torch._library.torch_nccl_version())


def is_ucc_available():
    import torch

    return bool(torch._library.torch_has_ucc())
