"""One program a figure of the papers."""
