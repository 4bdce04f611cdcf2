"""The keys of stack files: what each means, which values it may have, and new files of them."""
