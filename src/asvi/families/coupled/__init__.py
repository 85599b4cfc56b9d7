"""Takes prior conditionals and the noise of earlier sites; gives the coupled family."""
