"""Checks of files, models, images and this machine before they cost anything."""
