"""What python -m export does: a file for each subcommand."""
