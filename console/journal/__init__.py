"""What a run leaves on disk, and the code that reads it."""
