"""Training: its speed beside other loops, its memory, and what a run survives."""
