"""Converts a training run to a verified model folder: `python -m export --help`."""
