"""What the flavors ``base`` and ``nccl`` share: their configuration, and their graph of images."""
