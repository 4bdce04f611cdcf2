#!/bin/sh
# The image runs as the user 1000, who owns a home directory and the Python environment and is no super-user.
set -eu

fail() {
  echo "$1" >&2
  exit 1
}

[ "$(id -u):$(id -g)" = 1000:1000 ] || fail "the image runs as $(id), not as user and group 1000"
[ "$HOME" = /home/slipway ] || fail "HOME is $HOME, not /home/slipway"
[ -w "$HOME" ] || fail "$HOME cannot be written"
[ -w "$VIRTUAL_ENV/lib" ] || fail "$VIRTUAL_ENV cannot be written, so pip cannot install"
[ ! -w /etc/passwd ] || fail "the user can write /etc/passwd"
