"""Will it fit: arithmetic over plain values; nothing here looks at a machine or a network."""
