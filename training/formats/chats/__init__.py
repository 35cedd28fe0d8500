"""Chats as messengers and assistants export them, to conversations."""
