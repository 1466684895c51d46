"""What can be known before anything is paid for: architecture, size, memory, host."""
