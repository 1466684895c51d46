"""What a run leaves on disk, and its readers."""
