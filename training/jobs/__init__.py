"""Whole trainings, from the options of a command: begin one, or go on with it."""
