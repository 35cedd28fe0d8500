"""The project's own dialogues, made without any download. See generator.py."""
