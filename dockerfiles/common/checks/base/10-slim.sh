#!/bin/sh
# No compiler and no development package: they are for building extensions, which is done elsewhere.
set -eu
for program in cc gcc g++ clang nvcc make cmake; do
  if command -v "$program"; then
    echo "a base image has no $program" >&2
    exit 1
  fi
done
packages=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' | grep -E '^installed .*-dev(-|$)' || true)
if [ -n "$packages" ]; then
  echo "a base image has no development packages, but: $packages" >&2
  exit 1
fi
