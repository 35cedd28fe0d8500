"""Models made elsewhere, read: weights, tokenizer, chat template."""
