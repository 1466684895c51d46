"""The embedded demo: generated models and a real llama.cpp server."""
