"""Whether the installed build loads a model, asked of the build itself."""
