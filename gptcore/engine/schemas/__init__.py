"""Replies that are JSON of a schema: what a schema may be, and which tokens may come next."""
