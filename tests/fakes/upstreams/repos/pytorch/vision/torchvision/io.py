import zlib

import numpy
import torch


def encode_png(image):
    return image.array.shape, zlib.compress(image.array.tobytes())


def decode_png(data):
    return torch.Tensor(numpy.frombuffer(zlib.decompress(data[1]), dtype=numpy.uint8).reshape(data[0]))
