"""The page as Gradio serves it: the endpoints, what stands before them, the command line. The only
room with gradio."""
