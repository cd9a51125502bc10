"""Bounds that hold for any data of stated kind: initialization, restricted Lipschitz, early stopping."""
