"""A verified model folder and its card."""
