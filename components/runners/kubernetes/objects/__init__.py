"""Kubernetes objects as Pulumi resources: how they are declared, and what a cut-off update made of them."""
