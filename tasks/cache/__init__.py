"""Which stages stand: their digests, manifests, and what is taken over from other runs."""
