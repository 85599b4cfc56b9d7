"""Takes a guide that maps noise to draws; gives the posterior: weighted or moved draws."""
