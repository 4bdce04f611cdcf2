"""What keeps an image from its tag: models of the keys."""
