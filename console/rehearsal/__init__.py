"""Runs the same playbook with stand-ins for images and GPUs."""
