"""What the toolchain asks of the machine: packages, programs, files, the network."""
