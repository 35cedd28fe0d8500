"""llama.cpp's format, written and read."""
