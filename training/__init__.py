"""Text to a trained decoder: `python -m training --help`."""

from gptcore.checks import need_packages

need_packages("torch", "requirements-train.txt")
