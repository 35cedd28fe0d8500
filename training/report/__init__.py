"""Records of a run: metrics, TensorBoard events and the HTML report."""
