"""What stands before the page: who may come in, how much one may hold, and what a call must be."""
