"""How images are pushed."""
