"""Readers of models made elsewhere: weights, tokenizer, chat template."""
