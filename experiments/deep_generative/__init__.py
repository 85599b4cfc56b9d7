"""The paper's deep generative models of images, by amortised ASVI; see ``README.md``."""
