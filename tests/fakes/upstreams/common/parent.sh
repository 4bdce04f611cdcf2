#!/bin/sh
# parent.sh base|devel: turns Debian into the stand-in of one of NVIDIA's CUDA images.
# It calls itself DISTRO, as they do.
set -eu

printf 'ID=ubuntu\nVERSION_ID="%s"\n' "${DISTRO#ubuntu}" > /etc/standin-release
ln -sf standin-release /etc/os-release
short=$(printf '%s' "$CUDA_VERSION" | cut -d . -f 1,2)
dashed=$(printf '%s' "$short" | tr . -)
repository=compute/cuda/repos/$(printf '%s' "$DISTRO" | tr -d .)/x86_64

# The packages are at hand here; whoever builds on this image has only the public address.
echo "deb [trusted=yes] file:///nvidia/$repository /" > /etc/apt/sources.list.d/cuda.list
apt-get update -q -o Dir::Etc::SourceList=/dev/null  # what Debian has is installed
apt-get install -q -y --no-install-recommends "cuda-cudart-$dashed"
ln -s "cuda-$short" /usr/local/cuda
if [ "$1" = devel ]; then
  # An older one than the newest, as NVIDIA's images hold.
  cudnn="libcudnn9-cuda-${CUDA_VERSION%%.*}=9.20.0.48-1 libcudnn9-dev-cuda-${CUDA_VERSION%%.*}=9.20.0.48-1"
  [ "${CUDA_VERSION%%.*}" -gt 12 ] || [ "${short#12.}" -ge 6 ] 2> /dev/null || cudnn=libcudnn8-dev
  nccl=2.15.5-1+cuda$short
  # shellcheck disable=SC2086
  apt-get install -q -y --no-install-recommends "cuda-nvcc-$dashed" "cuda-cudart-dev-$dashed" \
    "libcublas-dev-$dashed" "cuda-driver-dev-$dashed" "cuda-nvml-dev-$dashed" $cudnn "libnccl2=$nccl" "libnccl-dev=$nccl"
  apt-mark hold libnccl2 libnccl-dev
fi
echo "deb [trusted=yes] https://developer.download.nvidia.com/$repository /" > /etc/apt/sources.list.d/cuda.list
apt-get clean
rm -rf /var/lib/apt/lists/*
