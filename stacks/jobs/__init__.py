"""Examples of jobs that run an image on a cluster."""
