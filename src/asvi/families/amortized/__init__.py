"""Takes a network; gives parameters of a plate's latents as functions of the data."""
