"""The build service on EC2: one machine, its volume, the way to it, and what starts and stops it."""
