"""Frozen data that crosses rooms: budgets, events, guarantees, predictions, estimates, plans, certificates."""
