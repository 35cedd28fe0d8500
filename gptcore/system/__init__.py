"""What lies below: files, cores, installed packages, the command line."""
