import numpy
import torch


def lfilter(wave, a, b):
    result = numpy.zeros_like(wave.array)
    for index in range(len(result)):
        result[index] = b.array[0] * wave.array[index] - (a.array[1] * result[index - 1] if index else 0)
    return torch.Tensor(result)
