"""Muon and AdamW, and the learning rate's schedule."""
