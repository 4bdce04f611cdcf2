"""The error that ends a benchmark."""


class BenchError(Exception):
    """A missing prerequisite or a failed program; the text is one line."""
