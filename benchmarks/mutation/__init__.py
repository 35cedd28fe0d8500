"""What benchmarks/mutants.py is made of: the edits, and what the tests say of them."""
