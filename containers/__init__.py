"""Reads anybody's Dockerfiles, images, registries and engines; beside the folders, errors and secrets in shown text."""
