"""The same run with stand-ins at the image boundary."""
