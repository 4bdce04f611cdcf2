"""A stack's configuration: its YAML file, and the models of all keys, one module for each block of them."""
