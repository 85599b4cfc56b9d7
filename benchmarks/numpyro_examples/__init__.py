"""Models of the kinds that NumPyro's own examples have, each beside a long run of NUTS."""
