"""Commands that search: the fastest flags, the first bad version."""
