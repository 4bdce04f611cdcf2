#!/bin/sh
# parent.sh: adds to the stand-in of one of NVIDIA's images what Megatron-LM wants of it: a torch that asks the driver for
# GPUs, TransformerEngine, and a pip that is held to versions.
set -eu

packages=$(python3 -c 'import site; print(site.getsitepackages()[0])')
cp /aks/gpus.py "$packages/torch/cuda.py"
printf 'from torch import cuda  # noqa: E402, F401\n' >> "$packages/torch/__init__.py"

# module NAME VERSION: a package with one empty module.
module() {
  mkdir -p "$packages/$1" "$packages/$1-$2.dist-info"
  [ -e "$packages/$1/__init__.py" ] || echo "__version__ = '$2'" > "$packages/$1/__init__.py"
  printf 'Metadata-Version: 2.1\nName: %s\nVersion: %s\n' "$1" "$2" > "$packages/$1-$2.dist-info/METADATA"
  echo pip > "$packages/$1-$2.dist-info/INSTALLER"
  printf '%s,,\n' "$1/__init__.py" "$1-$2.dist-info/METADATA" "$1-$2.dist-info/INSTALLER" "$1-$2.dist-info/RECORD" \
    > "$packages/$1-$2.dist-info/RECORD"
}
module torch 2.11.0a0
module transformer_engine 2.9.0
mkdir "$packages/transformer_engine/pytorch"
touch "$packages/transformer_engine/pytorch/__init__.py"
echo transformer_engine/pytorch/__init__.py,, >> "$packages/transformer_engine-2.9.0.dist-info/RECORD"
mkdir -p /etc/pip
echo 'transformer_engine==2.9.0' > /etc/pip/constraint.txt
find / -xdev -name __pycache__ -prune -exec rm -r {} +
