"""Private training: full batch, one pass, random features, networks."""
