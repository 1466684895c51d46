"""`bisect`: the first bad one of an ordered list of versions, found by whole runs of a playbook."""
