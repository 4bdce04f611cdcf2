"""What decides whether an image gets its tag, or stays on its engine: it loads, and nothing refused is known of it."""
