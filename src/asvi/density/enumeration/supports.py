"""Takes a discrete site; gives all values of one element, where they are finitely many."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal
from numpyro.distributions import Distribution

from asvi.density.constant_folding import fold_constants
from asvi.density.settings import EvaluatorSettings
from asvi.program.program import Program
from asvi.program.site import Site
from asvi.program.statements.stacked import Stacked
from asvi.program.unwrapping import bare_distribution

__all__ = ["support_of", "support_of_site"]


def support_of(fn: Distribution) -> np.ndarray | None:
    """All values of one element, (K,); None where they are infinitely many or not known."""
    step: Any = bare_distribution(fn)
    while isinstance(step, Stacked):
        step = bare_distribution(step.step_dist)
    if not step.has_enumerate_support:
        return None
    try:
        with jax.ensure_compile_time_eval():
            values = np.asarray(step.enumerate_support(expand=False))
    except (NotImplementedError, jax.errors.JAXTypeError, TypeError):  # traced, or unlike bounds
        return None
    return values.reshape(len(values), -1)[:, 0]


def support_of_site(
    program: Program, site: Site, settings: EvaluatorSettings = EvaluatorSettings()
) -> np.ndarray | None:
    """The same, of a site; bounds that the data set are looked up in the recorded program."""
    found = support_of(site.distribution)
    if found is not None or program.recorded is None:
        return found
    recorded = program.recorded
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(recorded.shape)[0]]
    own = recorded.only([path[0].idx == 0 and path[1].key == site.address for path in paths])
    jaxpr, consts = fold_constants(own.jaxpr, own.consts, settings)
    known = dict(zip(jaxpr.invars, consts))
    leaves, tree = jax.tree.flatten(site.distribution)
    values = [
        np.asarray(v.val) if isinstance(v, Literal) else known.get(v, x)
        for v, x in zip(jaxpr.outvars, leaves, strict=True)
    ]
    return support_of(jax.tree.unflatten(tree, values))
