"""Extensions of Python: which NumPy, torch and Python they are built for."""
