"""What differs between two images in registries, told from their manifests and from those layers that differ."""
