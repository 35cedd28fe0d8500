"""The training loops that benchmarks/train.py compares, and the plain products beside them."""
