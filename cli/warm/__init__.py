"""Layers with the caches that a script leaves in an image, so that first steps need not compile."""
