"""Takes a model and a guide; gives the ELBO, its gradient estimators, sums over discrete sites."""

from asvi.objective.elbo import ELBO
from asvi.program.run_trace import log_densities, log_density, trace_of

__all__ = ["ELBO", "log_densities", "log_density", "trace_of"]
