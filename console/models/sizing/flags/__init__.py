"""The options of each engine that change the memory, as a plan: one module an engine.

The rule for all of them: an option that is not in the engine's table, that no sum has, or whose
value cannot be read, is named, and leaves the verdict UNKNOWN.
"""
