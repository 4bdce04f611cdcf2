# deep_ep/__init__.py:9 of deepseek-ai/DeepEP at 567632d.
import torch

from deep_ep_cpp import answer
