"""The calls that ccache wrote into its CCACHE_STATSLOG."""

from __future__ import annotations

HITS = {"direct_cache_hit", "preprocessed_cache_hit"}


def compiler_calls(log: str) -> list[tuple[str, bool]]:
    """Return each file that was compiled, by its name, and whether its object was in the cache. Other calls are left out."""
    calls = []
    for entry in log.split("# ")[1:]:
        file, *counted = entry.split()
        if {"cache_miss", "recache", *HITS} & {*counted}:
            calls.append((file.rpartition("/")[2], bool(HITS & {*counted})))
    return calls
