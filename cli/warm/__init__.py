"""Layers with the caches of a user's script, so that first steps need not compile, and their evidence."""
