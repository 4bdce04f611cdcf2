"""Runners on EC2: AWS resources, the machines' boot scripts, and the functions that start and end machines."""
