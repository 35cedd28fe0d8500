"""Muon, AdamW and the learning rate schedule."""
