"""Registries and the images in them (OCI distribution and image specifications)."""
