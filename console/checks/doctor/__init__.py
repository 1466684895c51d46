"""Checks what this machine has and what is missing, each check with a deadline."""
