"""What is attested of an image: its provenance, and what the attestations prove."""
