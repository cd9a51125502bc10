"""Models as plain mathematics: linear, logistic, random features, networks."""
