"""The run directory, its settings, and the clock of a planned run."""
