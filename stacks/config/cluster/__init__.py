"""Configuration of what a cluster has for runners beside their pods."""
