"""What our recipes rely on in other people's repositories and archives, held against these."""
