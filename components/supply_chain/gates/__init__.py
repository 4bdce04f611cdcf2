"""What decides whether a pushed image gets its tag: everything loads, nothing refused is known of it."""
