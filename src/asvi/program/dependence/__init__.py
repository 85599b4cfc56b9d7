"""Takes a recorded function; gives which of its outputs depend on which inputs, and where."""
