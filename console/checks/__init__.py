"""Verdicts before anything is paid for: files, models, images, this machine."""
