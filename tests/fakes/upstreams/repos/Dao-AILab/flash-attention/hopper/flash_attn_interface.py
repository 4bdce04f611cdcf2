import torch
import flash_attn_3_cuda
