"""The process that walks the plan of a run, and everything that starts, steers and ends it."""
