"""Several hosts, each with its own console, reached over OpenSSH."""
