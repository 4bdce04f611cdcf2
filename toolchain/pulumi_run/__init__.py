"""Pulumi on one stack: how it is run, and what its run prints."""
