"""Lines of a log: parsed, followed, kept within bounds, filtered and searched."""
