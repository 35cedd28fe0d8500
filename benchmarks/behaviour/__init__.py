"""What a model says."""
