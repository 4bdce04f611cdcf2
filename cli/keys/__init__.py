"""The keys of stack files: the meaning of each, its allowed values, and new files of them."""
