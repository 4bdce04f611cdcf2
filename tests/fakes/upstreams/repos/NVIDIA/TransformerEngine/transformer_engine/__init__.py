_NCCL_EP_MIN_VERSION = (2, 30, 4)  # of NCCL, for what release 2.17 adds

from . import common

# As the real one, which goes on without its part for torch.
try:
    from . import pytorch
except ImportError:
    pass
