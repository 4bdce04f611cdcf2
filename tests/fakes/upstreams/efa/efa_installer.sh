#!/bin/bash
# Stand-in of EFA's installer: knows the options that its version has, refuses what the real one cannot do in a build, leaves
# out the plugin where the real one would, and installs the packages beside it.
set -eu
version=@VERSION@
newer() {
  [ "$(printf '%s\n' "$1" "$version" | sort -V | head -n 1)" = "$1" ]
}
yes='' kmod='' limits='' verify='' ngc=auto
for option in "$@"; do
  case $option in
    -y) yes=1 ;;
    -g | -d) ;;
    --skip-kmod) kmod=skip ;;
    --skip-limit-conf) limits=skip ;;
    --no-verify) verify=skip ;;
    --disable-ngc) newer 1.48.0 || { echo "Unknown option: $option" >&2; exit 1; }; ngc=off ;;
    *) echo "Unknown option: $option" >&2; exit 1 ;;
  esac
done
[ -n "$yes" ] || { echo "Do you wish to continue? [y/N]" >&2; exit 1; }
# shellcheck source=/dev/null
. /etc/os-release
case $ID-$VERSION_ID in
  ubuntu-20.04 | ubuntu-22.04) ;;
  ubuntu-24.04) newer 1.33.0 || { echo "Ubuntu 24.04 is not supported" >&2; exit 1; } ;;
  *) echo "$ID $VERSION_ID is not supported" >&2; exit 1 ;;
esac
[ -n "$kmod" ] || { echo "Unable to locate package linux-headers-$(uname -r)" >&2; exit 1; }
[ -n "$limits" ] || echo '* hard memlock unlimited' > /etc/security/limits.d/01_efa.conf
if dpkg-query -W -f '${db:Status-Status}' libmlx5-1 2> /dev/null | grep -qx installed; then
  echo "libmlx5-1 breaks libibverbs1" >&2
  exit 1
fi
packages=$(ls ./DEBS/*.deb)
if newer 1.48.0 && [ "$ngc" = auto ] && [ -f /opt/nvidia/nvidia_entrypoint.sh ]; then
  echo "NGC image: the plugin is left out"
  packages=$(echo "$packages" | grep -v libnccl-ofi)
fi
# shellcheck disable=SC2086
apt-get install -y libibverbs1 ibverbs-providers librdmacm1 $packages
echo "# EFA installer version: $version" > /opt/amazon/efa_installed_packages
dpkg-query -W 'libfabric*aws*' 'openmpi*-aws' >> /opt/amazon/efa_installed_packages
[ -n "$verify" ] || /opt/amazon/efa/bin/fi_info -p efa
