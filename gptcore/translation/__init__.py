"""Translation: beam search, and the encoder and decoder over ONNX Runtime."""
