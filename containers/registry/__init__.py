"""Registries: references, the client, manifests, indexes and logins."""
