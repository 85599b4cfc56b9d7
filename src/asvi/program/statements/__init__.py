"""Takes `sample` statements as users write them; gives them in the one form that runs know."""
