"""A training run to a verified model folder: `python -m export --help`."""

from gptcore.checks import need_packages

need_packages("torch", "requirements-train.txt")
