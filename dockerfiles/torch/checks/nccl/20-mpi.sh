#!/bin/sh
# Processes that mpirun starts have the image's Python and torch.
set -eu
mpirun --oversubscribe -np 2 python -c 'import os, torch; assert os.environ["OMPI_COMM_WORLD_SIZE"] == "2"'
grep -q '^PATH=/opt/venv/bin:' /etc/environment
