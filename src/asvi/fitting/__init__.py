"""Takes an objective; gives a fit: the small pieces that :func:`asvi.fit` is put together from."""
