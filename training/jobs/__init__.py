"""Whole trainings from the options of a command: start or resume a run."""
