# As the real one, which goes on without its part for torch.
try:
    from . import pytorch
except ImportError:
    pass
