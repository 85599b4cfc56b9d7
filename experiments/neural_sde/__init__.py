"""Deep Bayesian smoothing with neural SDEs: section 6.2 of the ASVI paper, as a study to repeat."""
