"""Synthetic problems and twins: training on data that nobody owns."""
