"""The page, the static site and the window, as a browser shows them: speed, memory, opening."""
