#!/usr/bin/env python3
"""torchaudio's transforms and compiled operators run: a tone is found in its band, a text is aligned to its frames."""

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

# Frame by frame the likeliest are 1, nothing (0) and 2.
likely = torch.tensor([[[0.0, 9.0, 0.0], [9.0, 0.0, 0.0], [0.0, 0.0, 9.0]]]).log_softmax(dim=-1)
path = torchaudio.functional.forced_align(likely, torch.tensor([[1, 2]]))[0].tolist()
if path != [[1, 0, 2]]:
    sys.exit(f"1, 2 is aligned to three frames as {path}, not as [[1, 0, 2]]")
