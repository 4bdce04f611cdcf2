"""Runners on Kubernetes, and their build service."""
