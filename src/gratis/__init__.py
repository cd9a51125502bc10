"""Gratis."""
