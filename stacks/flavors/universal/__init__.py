"""``universal``: PyTorch from 1.9.1 on for CUDA from 10.2 on or the CPU, from source, and images to train in."""

from stacks.flavors.universal.universal_config import Config
from stacks.flavors.universal.universal_images import images, requirements

__all__ = ["Config", "images", "requirements"]
