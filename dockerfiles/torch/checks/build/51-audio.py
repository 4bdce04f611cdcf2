#!/usr/bin/env python3
"""torchaudio's transforms and compiled operators run: a tone is found in its band, a transducer's loss is right."""

import math
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

# One label in two frames, where each step is as likely as the two others: two ways, of three steps each. The operator
# is compiled, and every release has it.
one, two = torch.tensor([1], dtype=torch.int32), torch.tensor([2], dtype=torch.int32)
loss = torchaudio.functional.rnnt_loss(torch.zeros(1, 2, 2, 3), one.reshape(1, 1), two, one, blank=0).item()
if abs(loss - math.log(3**3 / 2)) > 1e-5:
    sys.exit(f"the loss of a transducer is {loss}, not the logarithm of 13.5")
