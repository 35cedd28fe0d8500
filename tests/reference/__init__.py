"""The textbook systems, each written from its document alone and sharing nothing with gptcore.

They are slow and plain, and they keep the documents' names: tests/nn/test_textbook.py says which of
our parameters is which of theirs. Dropout is left out, for they are compared in eval mode.
"""
