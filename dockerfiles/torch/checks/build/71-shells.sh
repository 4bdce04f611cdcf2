#!/bin/sh
# `python`, `python3` and `pip` are the environment's, in a login shell too, which sets PATH anew.
set -eu

for shell in "sh -c" "bash -lc" "env -i HOME=$HOME bash -lc"; do
  for program in python python3 pip; do
    # shellcheck disable=SC2086  # a shell and its flags
    found=$($shell "command -v $program")
    if [ "$found" != "/opt/venv/bin/$program" ]; then
      echo "$shell: $program is '$found', not /opt/venv/bin/$program" >&2
      exit 1
    fi
  done
done
