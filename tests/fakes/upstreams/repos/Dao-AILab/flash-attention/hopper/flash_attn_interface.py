# hopper/flash_attn_interface.py:24 and :39 of Dao-AILab/flash-attention at 15270e66.
import flash_attn_3._C
import torch
from flash_attn_config import CONFIG


def flash_attn_func():
    return CONFIG
