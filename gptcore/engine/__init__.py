"""From prompts to replies: slots, sampling, and one scheduler for all users of a model."""
