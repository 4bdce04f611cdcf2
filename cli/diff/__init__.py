"""Differences between images in registries, from their manifests and the layers that differ."""
