import ctypes
import pathlib

import torch

from . import _C, functional, transforms

for _library in ("libtorchaudio.so", "_torchaudio.so"):
    ctypes.CDLL(pathlib.Path(__file__).parent / "lib" / _library)
