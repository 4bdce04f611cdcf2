"""The attestations after an image's publication, and the tags that move by them."""
