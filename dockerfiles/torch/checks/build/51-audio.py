#!/usr/bin/env python3
"""torchaudio transforms and its compiled filter run: a tone is found in its band, a filter has its impulse response."""

import os
import sys

if not os.environ["TORCH_AUDIO_VERSION"]:
    sys.exit()  # left out

import torch
import torchaudio

rate, frequency, size = 16000, 1000, 400
tone = torch.sin(2 * torch.pi * frequency * torch.arange(rate) / rate)
loudest = torchaudio.transforms.Spectrogram(n_fft=size)(tone).mean(dim=-1).argmax().item()
if loudest != frequency * size // rate:
    sys.exit(f"a tone of {frequency} Hz is loudest in band {loudest}, not in band {frequency * size // rate}")

impulse = torch.zeros(8)
impulse[0] = 1
response = torchaudio.functional.lfilter(impulse, torch.tensor([1.0, -0.5]), torch.tensor([1.0, 0.0]))
if not torch.allclose(response, 0.5 ** torch.arange(8.0)):
    sys.exit(f"the filter y[n] = x[n] + y[n-1] / 2 answers an impulse with {response.tolist()}")
