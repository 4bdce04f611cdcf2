"""The programs that the sections of the benchmark run."""
