"""Text to token ids and back, and the format of conversations."""
