"""Getting model files: from a hub in its own cache layout, or from an address. Blocking; any thread."""
