"""What a run leaves to look at: metrics, TensorBoard events, the report."""
