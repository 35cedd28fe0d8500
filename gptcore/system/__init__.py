"""Services for all rooms: files, CPU cores, installed packages, the command line."""
