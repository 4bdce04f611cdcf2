"""A client of the Docker engine's API."""
