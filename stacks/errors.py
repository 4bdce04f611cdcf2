"""The errors of the library of containers, for the stacks."""

from oci.errors import (
    MALFORMED,
    MOST_LINES,
    SlipwayError,
    abridged,
    builds_no,
    clean_output,
    listing,
    one_line,
    printable,
    quoted,
    shown,
    suggest,
)

__all__ = [
    "MALFORMED",
    "MOST_LINES",
    "SlipwayError",
    "abridged",
    "builds_no",
    "clean_output",
    "listing",
    "one_line",
    "printable",
    "quoted",
    "shown",
    "suggest",
]
