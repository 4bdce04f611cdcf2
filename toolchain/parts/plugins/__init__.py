"""Pulumi provider plugins, and which provider a stack uses."""
