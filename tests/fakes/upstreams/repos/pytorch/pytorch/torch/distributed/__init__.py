def is_ucc_available():
    import torch

    return bool(torch._library.torch_has_ucc())
