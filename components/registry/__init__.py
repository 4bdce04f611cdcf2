"""Registries as components, a module for each kind."""
