"""What is learned: language modelling, translation."""
