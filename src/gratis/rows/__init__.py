"""Rows from arrays and files, and public data sets."""
