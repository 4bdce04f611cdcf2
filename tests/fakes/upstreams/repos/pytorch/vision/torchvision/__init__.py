import ctypes
import pathlib

import torch

from . import _C, io, ops

assert _C.answer() == 42
