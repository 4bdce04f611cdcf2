"""Files of this repository that are written from the models, the Dockerfiles and the command itself."""
