"""One user's replies: speed and memory of reading and decoding, here and in other runtimes."""
