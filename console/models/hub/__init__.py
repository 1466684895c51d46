"""What a model repository holds, and fetching it."""
