#!/bin/sh
# Processes that mpirun starts have the image's Python and torch.
set -eu
mpirun --oversubscribe -np 2 python -c 'import os, torch; assert os.environ["OMPI_COMM_WORLD_SIZE"] == "2"'
if ! grep -q '^PATH=/opt/venv/bin:' /etc/environment; then
  echo "a session that sshd opens has not the environment's Python: $(grep ^PATH= /etc/environment)" >&2
  exit 1
fi
