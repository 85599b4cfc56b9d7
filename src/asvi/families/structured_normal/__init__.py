"""Takes a program; gives a Gaussian over the numbers that it makes its latent values from."""
