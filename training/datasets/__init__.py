"""Texts by name, with their licences: found prepared, or downloaded and cleaned. See reading.py."""
