"""Will it fit? Arithmetic over plain values; nothing here looks at a machine or a network."""
