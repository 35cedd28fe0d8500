"""One user's replies: speed of decoding here, in other runtimes and in a browser."""
