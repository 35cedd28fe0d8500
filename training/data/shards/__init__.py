"""Token shards: the ids of documents in flat, hashed files, on the disk or at a URL."""
