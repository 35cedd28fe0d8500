"""The chat page, the only room that imports gradio: its command line and its tabs. No torch."""
