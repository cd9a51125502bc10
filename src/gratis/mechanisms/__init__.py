"""The only room where a value computed from private rows meets noise."""
