"""Kept for what names the relay of a cutover: a sealed rollback.sh finds it by this name."""
