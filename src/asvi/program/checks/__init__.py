"""Takes what a model run met; raises errors that name the site and show the mended line."""
