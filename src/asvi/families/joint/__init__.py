"""Takes a whole model; gives guides of all its sites at once: baselines of the paper's tables."""
