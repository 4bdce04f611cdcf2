#!/bin/sh
# ngc.sh [PACKAGE...]
#
# Turns Debian into the stand-in of one of NVIDIA's PyTorch images: CUDA's compiler, NCCL, HPC-X, the distribution's InfiniBand
# libraries, a torch that is linked with HPC-X's UCC, and further packages. It calls itself Ubuntu, as they do.
set -eu

short=$(printf '%s' "$CUDA_VERSION" | cut -d . -f 1,2)
dashed=$(printf '%s' "$short" | tr . -)
printf 'ID=ubuntu\nVERSION_ID="%s"\nPRETTY_NAME="Ubuntu %s"\n' "$UBUNTU" "$UBUNTU" > /etc/standin-release
ln -sf standin-release /etc/os-release

echo "deb [trusted=yes] file:///nvidia/compute/cuda/repos/ubuntu2404/x86_64 /" > /etc/apt/sources.list.d/cuda.list
apt-get update -q -o Acquire::Languages=none
nccl=$NCCL_VERSION-1+cuda$short
apt-get install -q -y --no-install-recommends "cuda-nvcc-$dashed" "cuda-cudart-dev-$dashed" "cuda-driver-dev-$dashed" \
  "cuda-nvml-dev-$dashed" "libnccl2=$nccl" "libnccl-dev=$nccl" bzip2 ibverbs-providers ibverbs-utils libibverbs-dev \
  libnuma1 librdmacm1 pybind11-dev python3-dev python3-pip python3-setuptools python3-wheel "$@"
apt-mark hold libnccl2 libnccl-dev
ln -s "cuda-$short" /usr/local/cuda
echo /usr/local/cuda/lib64 > /etc/ld.so.conf.d/cuda.conf
# They have no repository of NVIDIA's, and let pip install into the system.
rm /etc/apt/sources.list.d/cuda.list /usr/lib/python3*/EXTERNALLY-MANAGED

mkdir -p /opt/hpcx /opt/hpcx/nccl_rdma_sharp_plugin/lib /opt/hpcx/nccl_spectrum-x_plugin/lib /opt/hpcx/ncclnet_plugin/lib /opt/amazon/aws-ofi-nccl/lib /opt/nvidia /workspace
# With two OpenMPIs, as HPC-X from 2.26 on has them, and both in ld.so.conf.
tar -xf /hpcx/hpcx-2.26.tbz -C /opt/hpcx --strip-components 1
rm -r /opt/hpcx/sources
chmod +x /opt/hpcx/ompi[45]/bin/mpirun
ln -s /opt/hpcx/ompi /usr/local/mpi
for folder in /opt/hpcx/nccl_rdma_sharp_plugin /opt/hpcx/ncclnet_plugin /opt/amazon/aws-ofi-nccl; do
  echo 'int ncclNetPlugin_v6;' | gcc -x c -shared -o "$folder/lib/libnccl-net.so" -
done
echo /opt/amazon/aws-ofi-nccl/lib > /etc/ld.so.conf.d/aws-ofi-nccl.conf
# What their NCCL_NET_PLUGIN names.
echo 'int ncclNetPlugin_v10;' | gcc -x c -shared -o /opt/hpcx/nccl_spectrum-x_plugin/lib/libnccl-net-spcx.so -
printf '/opt/hpcx/%s/lib\n' ompi4 ompi5 ucx ucc nccl_rdma_sharp_plugin nccl_spectrum-x_plugin ncclnet_plugin > /etc/ld.so.conf.d/hpcx.conf
printf '#!/bin/bash\nexec "$@"\n' > /opt/nvidia/nvidia_entrypoint.sh
chmod +x /opt/nvidia/nvidia_entrypoint.sh
ldconfig

packages=$(python3 -c 'import site; print(site.getsitepackages()[0])')
mkdir -p "$packages/torch/lib"
cp -r /torch/utils /torch/include "$packages/torch/"
cp /efa/torch.py "$packages/torch/__init__.py"
printf '__version__ = "2.11.0a0"\ncuda = "%s"\n' "$short" > "$packages/torch/version.py"
printf 'from torch import version  # noqa: E402, F401\n' >> "$packages/torch/__init__.py"
printf '#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 11\n' > "$packages/torch/include/torch/version.h"
gcc -shared -fPIC -o "$packages/torch/lib/libtorch_cuda.so" /efa/torch.c -I /opt/hpcx/ucc/include -L /opt/hpcx/ucc/lib -lucc \
  -lnccl -L /usr/local/cuda/lib64 -lcudart -Wl,-rpath-link,/opt/hpcx/ucx/lib

apt-get clean
rm -rf /var/lib/apt/lists/*
find / -xdev -name __pycache__ -prune -exec rm -r {} +
