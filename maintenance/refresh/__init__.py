"""Releases that public sources have and the tables of ``stacks/versions`` do not, for ``slipway refresh``."""
