"""The program that a container of an image starts, its user, and its faults."""
