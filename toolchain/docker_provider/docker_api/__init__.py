"""The Docker engine's API, as the provider asks it."""
