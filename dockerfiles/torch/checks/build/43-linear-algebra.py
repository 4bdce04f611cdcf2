#!/usr/bin/env python3
"""torch inverts a matrix on the CPU, in each of the types that LAPACK has: it was built with one."""

import sys

import torch

for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128):
    inverse = torch.inverse(torch.tensor([[2, 1], [1, 1]], dtype=dtype))
    if not torch.allclose(inverse, torch.tensor([[1, -1], [-1, 2]], dtype=dtype)):
        sys.exit(f"the inverse of a matrix in {dtype} is {inverse.tolist()}")
