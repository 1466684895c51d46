"""What this Linux machine has and uses, and how a process lives on it."""
