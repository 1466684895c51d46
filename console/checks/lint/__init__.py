"""Finds faults known from lessons in playbooks, Dockerfiles, compose files and shell scripts."""
