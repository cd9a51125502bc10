"""What is predicted, never proved: deterministic equivalents, schedules found on them, rates and scaling laws."""
