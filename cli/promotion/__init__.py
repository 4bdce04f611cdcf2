"""What is attested after an image was published, and the tags that move by it."""
