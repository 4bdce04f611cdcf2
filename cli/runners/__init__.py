"""Runners of a stack as they are now: why jobs wait, and how many do."""
