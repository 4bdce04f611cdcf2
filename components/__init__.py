"""Pulumi components for the plans of `stacks`: how images, registries, signatures and runners are declared."""
