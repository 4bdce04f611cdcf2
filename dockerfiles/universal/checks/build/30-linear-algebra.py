#!/usr/bin/env python3
"""torch inverts a matrix on the CPU: it was built with MKL, or another LAPACK."""

import sys

import torch

product = torch.inverse(torch.tensor([[2.0, 1.0], [1.0, 1.0]]))
if not torch.allclose(product, torch.tensor([[1.0, -1.0], [-1.0, 2.0]])):
    sys.exit(f"the inverse of a matrix is {product}")
