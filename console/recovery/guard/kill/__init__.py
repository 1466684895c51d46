"""How the guard ends a candidate: by its recorded identity, with every right it has."""
