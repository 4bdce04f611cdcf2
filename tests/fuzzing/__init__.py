"""Coverage-guided fuzzing of the parsers of what comes from outside. `make fuzz` runs it; see ``__main__``."""
