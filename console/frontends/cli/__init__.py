"""The command line: one module per group of commands, which only prints."""
