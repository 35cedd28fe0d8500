"""Writers of file formats: ONNX, Hugging Face's."""
