"""Small local stand-ins of the torch family's upstreams, served on this machine to builds of the real engine."""
