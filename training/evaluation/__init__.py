"""How good a model is: held-out bits per byte, and rules for short conversations."""
