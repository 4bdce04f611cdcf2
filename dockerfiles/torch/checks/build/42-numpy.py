#!/usr/bin/env python3
"""Where NumPy is installed, a tensor becomes an array and comes back: it is a NumPy that torch was compiled for."""

import importlib.util
import sys

import torch

if importlib.util.find_spec("numpy"):
    values = torch.from_numpy(torch.ones(4).numpy()).tolist()
    if values != [1, 1, 1, 1]:
        sys.exit(f"four ones come back from NumPy as {values}")
