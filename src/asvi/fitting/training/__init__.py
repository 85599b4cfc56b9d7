"""Takes a problem; gives a guide's parameters by stochastic gradient steps."""
