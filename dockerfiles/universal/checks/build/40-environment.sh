#!/bin/sh
# The Python in use is the one of the environment, into which the user may install without getting another PyTorch; the clock is in
# the time zone that the image names.
set -eu

fail() {
  echo "$1" >&2
  exit 1
}

[ "$(command -v python)" = /opt/conda/bin/python ] || fail "python is $(command -v python), not that of /opt/conda"
site=$(python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
[ -w "$site" ] || fail "$site cannot be written by $(id)"
pip config get global.constraint > /dev/null || fail "pip would replace torch"
[ "$(readlink /etc/localtime)" = "/usr/share/zoneinfo/$TZ" ] || fail "/etc/localtime is not the time zone $TZ"
[ -w "$PWD" ] || fail "$PWD cannot be written by $(id)"
