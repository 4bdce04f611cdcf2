# flash_attn/cute/interface.py:10, :14 and :681 of Dao-AILab/flash-attention at fa4-v4.0.0.beta27.
import cutlass
import torch


def flash_attn_func(arch):
    assert arch // 10 in [8, 9, 10, 11, 12], "Unsupported compute capability. Supported: 8.x, 9.x, 10.x, 11.x, 12.x"
    return cutlass, torch
