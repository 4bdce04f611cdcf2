"""A policy pack of Pulumi: what a stack must be before it is applied."""
