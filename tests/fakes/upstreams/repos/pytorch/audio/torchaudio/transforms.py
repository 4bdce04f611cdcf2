import numpy
import torch


class Spectrogram:
    def __init__(self, n_fft):
        self.size = n_fft

    def __call__(self, wave):
        frames = wave.array[: len(wave.array) // self.size * self.size].reshape(-1, self.size)
        return torch.Tensor(abs(numpy.fft.rfft(frames, axis=1)).T ** 2)
