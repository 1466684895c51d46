"""The files that an operator writes: strict YAML in which every value knows its place."""
