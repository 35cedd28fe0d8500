"""Sentence pairs for translators: read, encoded, and in batches."""
