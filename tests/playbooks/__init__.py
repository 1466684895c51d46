"""Tests of what ships: playbooks, the stack, the mapping."""
