"""Text to batches: documents, token shards on the disk or at a URL, sentence pairs."""
