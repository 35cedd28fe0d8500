"""The files that are written: ONNX, smaller numbers, GGUF, Hugging Face's."""
