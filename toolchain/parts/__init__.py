"""The parts of the toolchain: what is used for each, and how it is installed."""
