"""What an image is made of: the files of its context, its fingerprint, and the commit that it comes from."""
