"""The training tasks: language modelling and translation."""
