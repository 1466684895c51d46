"""Whether the installed build loads a model, according to the build itself."""
