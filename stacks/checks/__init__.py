"""Rules over a resolved stack: what its models cannot see, each mistake as one message."""
