"""A look at texts before anything is trained: what there is, what is odd, what a model will see."""
