#!/bin/sh
# Nothing of the build is left: no wheels of torch, package lists or archives, pip's cache.
# (Python's own wheel of pip, which `python -m venv` needs, is below /usr/share.)
set -eu

# The parts that the user cannot read hold no package.
left=$(
  find / -xdev \( -path /tmp -o -path /usr/share \) -prune -o -type d ! -executable -prune -o \
    \( -name '*.whl' -o -path '/var/lib/apt/lists/*_Packages*' -o -path '/var/cache/apt/*' -name '*.deb' \
       -o -path '*/.cache/pip' \) -print | head -n 5
)
if [ -n "$left" ]; then
  echo "left behind by the build: $left" >&2
  exit 1
fi
