"""Where a model folder goes: a small copy, a Space, a static page, the Hub."""
