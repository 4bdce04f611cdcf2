"""A release of Slipway: the wheel, its command, and the repositories that use it."""
