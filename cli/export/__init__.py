"""Images and wheels as files, for where no Docker and no registry is: read from the registry, layer by layer."""
