"""Writers of file formats: ONNX, smaller number formats, Hugging Face's."""
