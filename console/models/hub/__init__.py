"""What a model repository holds, and how to fetch it."""
