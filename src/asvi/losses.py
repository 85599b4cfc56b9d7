"""Takes a program and the loss that trains it; says so where NumPyro's own loss would be wrong.

Four combinations are silently wrong in NumPyro (0.22), found by experiment:

- latent sites in a ``cond``, with any stock loss: ``cond`` ignores ``replay``, so the likelihood is
  computed at other values than the guide drew, and never trains the branch's sites;
- ``scan`` with ``TraceGraph_ELBO``: biased gradients;
- ``scan`` with ``TraceEnum_ELBO``: a wrong loss;
- sites without reparameterised draws with ``Trace_ELBO`` and its kin: their gradient is zero.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any

from numpyro.distributions import Distribution
from numpyro.infer import SVI, Predictive
from numpyro.infer import elbo as stock

from asvi.errors import LossError
from asvi.program import Program

__all__ = ["check_loss", "what_is_wrong"]

_MEND = "svi = numpyro.infer.SVI(model, guide, optimizer, asvi.ELBO())"


def what_is_wrong(
    program: Program, surrogates: dict[str, Distribution], loss: str
) -> str | None:
    """Why a stock loss of this class name would be wrong on this program, or None.

    ``"unknown"`` asks whether any stock loss would be.
    """
    in_cond = [s.name for s in program.latent if any(b.startswith("cond") for b in s.block)]
    if in_cond:
        return (
            f"site {in_cond[0]!r} is latent inside a `cond`, which ignores `replay`: the "
            "likelihood would be computed at other values than the guide drew"
        )
    in_scan = [s.name for s in program.latent if s.steps]
    if in_scan and loss in ("TraceGraph_ELBO", "TraceEnum_ELBO"):
        effect = "gradients are biased" if loss == "TraceGraph_ELBO" else "the loss is wrong"
        return f"site {in_scan[0]!r} is latent inside a `scan`, where {effect} under {loss}"
    scores = [s.name for s in program.latent if not surrogates[s.address].has_rsample]
    if scores and loss not in ("TraceGraph_ELBO", "TraceEnum_ELBO"):
        return (
            f"site {scores[0]!r} ({type(surrogates[scores[0]]).__name__}) has no reparameterised "
            "draws: its parameters would get a gradient of zero"
            if scores[0] in surrogates
            else f"site {scores[0]!r} has no reparameterised draws: its parameters would get a "
            "gradient of zero"
        )
    return None


def check_loss(
    program: Program, surrogates: dict[str, Distribution], seen: set[str]
) -> None:
    """Raise if the loss that runs the guide is known and wrong; warn once if it is not known."""
    loss = _loss_in_charge()
    name = "unknown" if loss is None else loss
    if name in seen or name == "none":
        return
    seen.add(name)
    problem = what_is_wrong(program, surrogates, name)
    if problem is None:
        return
    if name == "unknown":
        warnings.warn(
            f"{problem}. NumPyro's own losses are silently wrong here; asvi.ELBO() is right:\n"
            f"    {_MEND}",
            stacklevel=4,
        )
        return
    raise LossError(f"{problem}.\nWrite instead:\n    {_MEND}")


def _loss_in_charge() -> str | None:
    """Class name of the stock loss around this call; "none" where no stock loss is at work."""
    frame: Any = inspect.currentframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, SVI):
            owner = owner.loss
        if isinstance(owner, stock.ELBO):
            ours = type(owner).__module__.split(".")[0] == "asvi"
            return "none" if ours else type(owner).__name__
        if isinstance(owner, Predictive):
            return "none"
        frame = frame.f_back
    return None
