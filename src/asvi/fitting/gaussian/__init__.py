"""Takes a density over noise; gives the Gaussian nearest to it, by natural gradients."""
