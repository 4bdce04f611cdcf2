"""cuDNN at the release that a stack names, installed over the parent's, which holds an older one of an archive with newer ones."""

from __future__ import annotations

import pytest

from tests.images.engine import DOCKERFILES, base_image, docker

PARENT = r"""
set -e
mkdir /repo
cd /repo
package() {
  mkdir -p p/DEBIAN
  printf 'Package: %s\nVersion: %s\nArchitecture: amd64\nMaintainer: Nobody <n@localhost>\nDescription: stand-in\n%s' \
    "$1" "$2" "$3" > p/DEBIAN/control
  dpkg-deb -Znone --build p "$1_$2.deb"
  rm -r p
}
for version in 9.20.0.48-1 9.26.0.51-1 9.28.0.42-1; do
  package libcudnn9-cuda-12 $version ''
  package libcudnn9-headers-cuda-12 $version ''
  package libcudnn9-dev-cuda-12 $version "Depends: libcudnn9-cuda-12 (= $version), libcudnn9-headers-cuda-12 (= $version)
"
done
for file in *.deb; do
  dpkg-deb -f $file
  printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' $file "$(stat -c %s $file)" "$(sha256sum $file | cut -d ' ' -f 1)"
done > Packages
rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
echo 'deb [trusted=yes] file:///repo /' > /etc/apt/sources.list.d/cuda.list
apt-get update
old=9.20.0.48-1
apt-get install -y libcudnn9-cuda-12=$old libcudnn9-headers-cuda-12=$old libcudnn9-dev-cuda-12=$old
apt-mark hold libcudnn9-cuda-12
CUDA_VERSION=12.9.1 /srv/layers/install-cudnn
ls /etc/apt/preferences.d
dpkg-query -W -f '${Version} ${Package}\n' 'libcudnn9*'
"""


@pytest.mark.slow
@pytest.mark.parametrize(("named", "installed"), [("", "9.20.0.48-1"), ("9.26.0.51", "9.26.0.51-1")])
def test_cudnn_named_is_installed_with_its_headers(named: str, installed: str) -> None:
    layers = f"--volume={DOCKERFILES}/common/layers:/srv/layers:ro"
    environment = f"--env=CUDNN_VERSION={named}"
    done = docker("run", "--rm", "--interactive", layers, environment, base_image(), "sh", "-s", text=PARENT)
    assert done.stdout.splitlines()[-3:] == [
        f"{installed} libcudnn9-{part}cuda-12" for part in ("", "dev-", "headers-")
    ], done.stdout
