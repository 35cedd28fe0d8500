"""Is the exported graph the model? Checked against PyTorch."""
