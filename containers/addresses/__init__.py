"""Where engines and servers are, and how far a request may be led from there."""
