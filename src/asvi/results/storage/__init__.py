"""Takes a fit; gives a file in an open format, and the fit back from such a file."""
