"""Studies of the paper that need more than a table: neural SDEs, deep generative models."""
