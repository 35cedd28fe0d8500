"""Writers of file formats: ONNX, smaller number formats, GGUF, Hugging Face's."""
