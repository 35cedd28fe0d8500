"""The run directory and the settings in it."""
