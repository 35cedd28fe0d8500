"""Text to a trained decoder: `python -m training --help`."""
