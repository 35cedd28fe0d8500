"""The page in a window of its own, by a small server without Gradio."""
