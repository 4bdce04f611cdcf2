"""The builder on EC2: a machine with a volume, its power, and the ssh connection to it."""
