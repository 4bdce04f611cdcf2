"""The settings of a repository at GitHub whose jobs publish images."""
