"""What is declared around a pushed image: tags, signatures, attestations, and the verification of parents."""
