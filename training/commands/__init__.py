"""The subcommands of python -m training, each in a module."""
