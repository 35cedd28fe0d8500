"""Data sets by name, with their licences: read in prepared form, or downloaded and cleaned."""
