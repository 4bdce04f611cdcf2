import torch

from . import _C, functional, transforms
