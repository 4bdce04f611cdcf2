#!/bin/sh
# What is true of every PyTorch of ours: its packages import, by themselves, at the versions asked for, and work on the CPU.
# With torch's own checks on /media.
set -eu
for check in 10-imports.py 12-features.py 20-versions.py 30-dependencies.sh 40-arithmetic.py 43-linear-algebra.py 50-vision.py 60-libraries.py; do
  "/media/$check"
done
