"""Telling people who are not at the terminal what happened: durable, and no run waits for it."""
