"""The chat view, and what it asks of whoever serves it: Gradio, or the server of the window."""
