"""Takes the embedded tasks; gives their log evidence and posterior moments without any guide."""
