"""Attacks on what was trained, and the lower bounds that they prove."""
