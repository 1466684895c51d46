"""The arguments of each command, without its implementation."""
