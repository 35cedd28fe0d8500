"""The export: what its stages cost, and what each number format of a model is worth."""
