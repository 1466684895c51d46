"""A rollback from a shell: what it prints, and the sealed copy that needs no installed console."""
