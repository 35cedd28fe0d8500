"""Documents, token shards on the disk or at a URL, and batches of them."""
