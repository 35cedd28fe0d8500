"""Files of tables to documents: which columns hold what, and how each kind of file is read."""
