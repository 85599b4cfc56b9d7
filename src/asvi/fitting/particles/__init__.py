"""Takes a density over noise; gives particles led to it by temperatures, and moved there."""
