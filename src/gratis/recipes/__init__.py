"""One model a file: which stages, in which order, with which shares of μ²."""
