"""Dockerfiles: their instructions, the variables in them, and the stages and files that a target reaches."""
