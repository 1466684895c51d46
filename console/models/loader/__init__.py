"""What llama.cpp's loader requires of a GGUF header."""
