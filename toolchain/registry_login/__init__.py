"""The login of the registry that we start, and how programs get it."""
