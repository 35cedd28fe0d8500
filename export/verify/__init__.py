"""Comparison of the exported graphs with PyTorch."""
