"""Translation: beam search, and sessions over ONNX Runtime."""
