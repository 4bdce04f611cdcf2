"""The content of image layers: files, packages, and the file system that stacked layers make."""
