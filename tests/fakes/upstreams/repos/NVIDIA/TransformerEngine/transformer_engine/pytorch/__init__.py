from importlib.metadata import PackageNotFoundError, version

import torch
import transformer_engine_torch

# attention/dot_product_attention/backends.py:133-149 at v2.12, :138-156 at v2.15.
try:
    version("flash-attn-3")
except PackageNotFoundError:
    pass
else:
    if tuple(int(part) for part in version("transformer_engine").split(".")) < (2, 15):
        from flash_attn_3.flash_attn_interface import flash_attn_func
    else:
        from flash_attn_interface import flash_attn_func
