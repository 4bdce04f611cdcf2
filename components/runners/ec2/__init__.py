"""Runners on EC2: what AWS is asked for, what a machine does when it starts, and what starts and ends machines."""
