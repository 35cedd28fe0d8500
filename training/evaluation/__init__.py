"""Evaluation of models: bits per byte of held-out text, and rules for short conversations."""
