"""Takes a request; gives what one way to the posterior finds, or why it is not for it."""
