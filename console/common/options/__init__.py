"""What the options of each engine's server are, and the one reader of command lines.

The tables (`*.txt`) are facts of the engines: each option with its spellings, the kind of its
value, and what it does to the memory. Whoever reads an engine's command line does it through here.
"""
