# flash_attn/cute/__init__.py:10 of Dao-AILab/flash-attention at fa4-v4.0.0.beta27.
from .interface import flash_attn_func

__all__ = ["flash_attn_func"]
