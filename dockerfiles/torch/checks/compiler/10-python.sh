#!/bin/sh
# torch.compile can compile where the image runs: C++ for the CPU, and C with Python's headers, as Triton does for a GPU.
set -eu
for compiler in gcc g++; do
  if ! command -v "$compiler" > /dev/null; then
    echo "the image has no $compiler, which torch.compile calls" >&2
    exit 1
  fi
done
headers=$(python -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
if ! echo '#include <Python.h>' | gcc -fsyntax-only -I "$headers" -x c -; then
  echo "the image has no headers of Python in $headers, which Triton compiles with" >&2
  exit 1
fi
