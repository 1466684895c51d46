"""What an operator writes: strict YAML with the place of every value."""
