"""The guard's flight recorder and its status page, and their readers."""
