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
from typing import Any, NamedTuple

from numpyro.distributions import Distribution
from numpyro.infer import SVI, Predictive
from numpyro.infer import elbo as stock

from asvi.errors import LossError, warn_user, with_mended
from asvi.program.program import Program

__all__ = ["LossFault", "find_loss_fault", "guard_loss"]

_SCORE_LOSSES = ("TraceGraph_ELBO", "TraceEnum_ELBO")


class LossFault(NamedTuple):
    """Why a loss is wrong on a program: the site, what goes wrong there, the loss that is right."""

    site: str
    problem: str
    right: str = "asvi.ELBO()"

    def text(self, advice: str = "") -> str:
        """The problem and the mended line."""
        mended = f"svi = numpyro.infer.SVI(model, guide, optimizer, {self.right})"
        return with_mended(f"site {self.site!r}: {self.problem}", mended, advice)


def find_loss_fault(
    program: Program, surrogates: dict[str, Distribution], loss: str
) -> LossFault | None:
    """Why a loss of this class name would be wrong on this program, or None.

    ``surrogates`` holds the guide's distribution of each latent site by address. ``"unknown"``
    asks for what is wrong with losses that, like ``Trace_ELBO``, replay the guide's draws.
    """
    name = "a loss of NumPyro" if loss == "unknown" else loss
    for site in program.latent:
        if site.in_branch:
            return LossFault(
                site.name,
                f"it is latent inside a `cond`, which ignores `replay`: {name} would compute the "
                "likelihood at other values than the guide drew",
            )
    in_scan = [site.name for site in program.latent if site.steps]
    if loss in _SCORE_LOSSES:
        effect = "biased gradients" if loss == "TraceGraph_ELBO" else "a wrong loss"
        problem = f"it is latent inside a `scan`, where {name} gives {effect}"
        return LossFault(in_scan[0], problem) if in_scan else None
    for site in program.latent:
        surrogate = surrogates[site.address]
        if not surrogate.has_rsample:
            return LossFault(
                site.name,
                f"its surrogate ({type(surrogate).__name__}) has no reparameterised draws: {name} "
                "would give its parameters a gradient of zero",
                # The score-function loss that is right here is wrong as soon as there is a scan.
                "asvi.ELBO()" if in_scan else "numpyro.infer.TraceGraph_ELBO()",
            )
    return None


def guard_loss(program: Program, surrogates: dict[str, Distribution], seen: set[str]) -> None:
    """Raise if the loss that runs the guide is known and wrong; warn once if it is not known.

    ``seen`` holds the losses that were judged before; the one met now is added to it.
    """
    loss = _loss_in_charge()
    if loss in seen or loss == "none":
        return
    fault = find_loss_fault(program, surrogates, loss)
    if fault is not None and loss != "unknown":  # said at every call, so not yet "seen"
        raise LossError(fault.text())
    seen.add(loss)
    if fault is not None:
        advice = "Which loss is in use is not known here; this one is right:"
        warn_user(fault.text(advice))


def _loss_in_charge() -> str:
    """Class name of NumPyro's loss around this call.

    ``"none"`` where none is at work or it is ours, ``"unknown"`` where a class of the user's own,
    or nothing that can be seen, runs the guide.
    """
    frame: Any = inspect.currentframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, SVI):
            owner = owner.loss
        if isinstance(owner, stock.ELBO):
            return _kind_of(type(owner))
        if isinstance(owner, Predictive):
            return "none"
        frame = frame.f_back
    return "unknown"


def _kind_of(cls: type) -> str:
    packages = [base.__module__.split(".")[0] for base in cls.__mro__]
    if "asvi" in packages:  # a class of the user's that extends ours is as right as ours
        return "none"
    return cls.__name__ if packages[0] == "numpyro" else "unknown"
