"""Takes a model and its data; gives a Fit: the posterior, its verdict, files and pictures."""
