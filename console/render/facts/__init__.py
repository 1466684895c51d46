"""What is said of a run, worded once; every face lays it out in its own way."""
