"""``slipway lock``: what builds fetch from others, looked up and written down."""
