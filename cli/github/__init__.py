"""What a repository at GitHub needs so that its jobs may publish images."""
