"""How the guard kills a candidate: by its recorded identity, with every right that it has."""
