#!/usr/bin/env python3
"""torch is built for the CUDA of the image, which NVIDIA's parents name: the index that it came from may be another's.

A build for another minor version runs, and is told of.
Source: CUDA Compatibility, https://docs.nvidia.com/deploy/cuda-compatibility/.
"""

import os
import sys

import torch

image = os.environ.get("CUDA_VERSION")
if image:
    built = torch.version.cuda or "none"
    versions = f"torch {torch.__version__} is built for CUDA {built}, the image for CUDA {image}"
    if built.partition(".")[0] != image.partition(".")[0]:
        sys.exit(versions)
    print(versions)
