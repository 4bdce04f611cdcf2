"""What a container of an image starts, as which user, and whether it can."""
