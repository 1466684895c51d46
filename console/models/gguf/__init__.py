"""GGUF headers, from a file or a few HTTP ranges."""
