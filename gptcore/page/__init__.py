"""The chat page: its command line and its tabs. Only this room imports gradio. No torch."""
