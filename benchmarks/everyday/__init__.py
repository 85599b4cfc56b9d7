"""Takes nothing; gives models that people fit every day, their data and the true posteriors."""
