"""Text to token ids and back, and how a conversation is written down."""
