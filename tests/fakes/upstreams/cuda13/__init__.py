"""CUDA 13.2 of NVIDIA's own wheels, and the one chain of images that is made of little else than real parts."""
