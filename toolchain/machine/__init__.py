"""The machine that the toolchain runs on: packages, programs, files, the network."""
