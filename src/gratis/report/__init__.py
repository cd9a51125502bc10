"""Pictures and pages of results. Sees specs only: a plot cannot spend."""
