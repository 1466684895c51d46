"""What clients rely on besides speed: a server's fingerprint, and what is different in another."""
