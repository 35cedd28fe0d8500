"""Smaller number formats of an exported graph: integers in blocks, fitted to a text."""
