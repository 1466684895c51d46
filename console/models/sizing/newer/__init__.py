"""From which release or build of an engine a verdict holds, as options, values and classes came."""
