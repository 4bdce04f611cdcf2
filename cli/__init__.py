"""The command ``slipway``."""
