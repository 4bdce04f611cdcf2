"""What a container of an image starts: its programs as the kernel starts them, and its environments of Python."""
