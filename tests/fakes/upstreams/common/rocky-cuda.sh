#!/bin/sh
# rocky-cuda.sh base|devel: turns the stand-in of Rocky Linux or UBI into that of one of NVIDIA's CUDA images, and that into the
# one to develop with. NVIDIA's have findutils in the latter only.
set -eu
export PYTHONDONTWRITEBYTECODE=1

short=$(printf '%s' "$CUDA_VERSION" | cut -d . -f 1,2)
dashed=$(printf '%s' "$short" | tr . -)
repository=compute/cuda/repos/rhel$(printf '%s' "$DISTRO" | tr -d '[:lower:]')/x86_64

cat > /etc/yum.repos.d/cuda.repo << END
[cuda]
name=cuda
baseurl=https://developer.download.nvidia.com/$repository
enabled=1
gpgcheck=1
gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY
END
# The packages are at hand here; whoever builds on this image has only the public addresses.
mkdir /tmp/at-hand
sed "s|https://developer.download.nvidia.com|file:///archives/nvidia|" /etc/yum.repos.d/cuda.repo > /tmp/at-hand/cuda.repo
sed -E -e '/^mirrorlist/d' -e 's|^#(baseurl)|\1|' -e 's|https?://dl.rockylinux.org|file:///archives/rocky|' \
  -e 's|https://cdn-ubi.redhat.com|file:///archives/ubi|' /etc/yum.repos.d/[!c]*.repo > /tmp/at-hand/distribution.repo
if [ "$1" = base ]; then
  set -- "cuda-cudart-$dashed"
  ln -s "cuda-$short" /usr/local/cuda
else
  set -- findutils "cuda-nvcc-$dashed" "cuda-cudart-devel-$dashed" "libcublas-devel-$dashed" "cuda-driver-devel-$dashed" \
    "cuda-nvml-devel-$dashed" libcudnn8-devel "libnccl-2.15.5-1+cuda$short" "libnccl-devel-2.15.5-1+cuda$short"
fi
dnf --setopt=reposdir=/tmp/at-hand --setopt=cachedir=/tmp/at-hand --assumeyes --quiet install "$@"
rm -r /tmp/at-hand
