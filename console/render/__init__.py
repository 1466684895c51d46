"""Facts as words and rows, once for the command line, the screens and the report."""
