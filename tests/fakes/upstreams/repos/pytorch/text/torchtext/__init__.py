import torch

from . import _torchtext

assert _torchtext.answer() == 42
