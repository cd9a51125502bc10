"""Picks algorithm, clip, schedule and steps from public facts, and explains itself. Never reaches data."""
