"""GitHub Actions runners that build images."""
