"""Copies of one library in one process of an image, and what becomes of them."""
