"""What python -m training does: a file for each subcommand."""
