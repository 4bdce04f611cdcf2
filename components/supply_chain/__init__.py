"""The supply chain of images: additional tags, signatures, attestations, verified parents, reused products."""
