"""Error against seconds: ours and others' methods, on posteriors whose answer is known."""
