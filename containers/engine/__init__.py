"""A Docker engine that holds images: how this machine reaches it, and what it saves."""
