"""The faults of the lessons in playbooks, Dockerfiles, compose files and shell."""
