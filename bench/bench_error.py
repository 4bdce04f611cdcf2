"""The error that ends a run of the benchmark as one line."""


class BenchError(Exception):
    """A part that is missing or a program that failed; the text is one line."""
