"""Ways to publish a model folder: a small copy, a Space, a static page, the Hub."""
