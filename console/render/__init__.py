"""Facts as words and rows, shared by the command line, the screens and the report."""
