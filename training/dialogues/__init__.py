"""The generated dialogues, which need no download; see generator.py."""
