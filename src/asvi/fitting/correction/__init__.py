"""Takes a guide that maps noise to draws; gives draws of the posterior: weighted, or moved there."""
