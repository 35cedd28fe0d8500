"""The subcommands of python -m export, one module each."""
