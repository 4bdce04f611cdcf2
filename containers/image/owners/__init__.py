"""Who owns the files of an image: what package managers recorded of them."""
