#!/bin/sh
# The user can write the folder of models, which a volume is mounted on, and what vLLM and its kernels keep beside it.
set -eu

[ "$(id -u):$(id -g)" = 1000:1000 ] || { echo "the image runs as $(id), not as user and group 1000" >&2; exit 1; }
for folder in "$HOME/.cache/huggingface" "$HOME/.cache" "$HOME"; do
  [ -w "$folder" ] || { echo "$folder cannot be written" >&2; exit 1; }
done
