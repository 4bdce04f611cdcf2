"""Shell scripts and texts: how they are read, and what they start."""
