"""Stand-in of the program that trains: imports what the real one does, and knows one argument of it."""

import argparse

import megatron.core
import numpy  # noqa: F401
import torch  # noqa: F401
import transformer_engine.pytorch  # noqa: F401

parser = argparse.ArgumentParser(description=f"Megatron-LM {megatron.core.__version__}")
parser.add_argument("--tensor-model-parallel-size", type=int)
parser.parse_args()
