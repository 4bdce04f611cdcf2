"""The program of the image."""

import torch

print(f"PyTorch {torch.__version__}, {torch.cuda.device_count()} GPUs")
