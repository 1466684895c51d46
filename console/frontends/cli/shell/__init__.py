"""What a shell gets of the command line: its completion, and the man page."""
