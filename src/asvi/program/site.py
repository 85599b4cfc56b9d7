"""Takes what one ``sample`` statement of a model is; gives it as a Site, its plates as Plates."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Literal

from numpyro.distributions import Distribution, constraints

from asvi.program.addresses import BodyPath, address_of

__all__ = ["Plate", "Site", "SiteKind"]

SiteKind = Literal["latent", "observed", "factor", "fixed"]


@dataclass(frozen=True)
class Plate:
    """An independence context: its axis counts from the right of the batch shape."""

    name: str
    dim: int
    size: int
    subsample_size: int

    def __str__(self) -> str:
        part = "" if self.size == self.subsample_size else f"{self.subsample_size} of "
        return f"{self.name}[{part}{self.size}]"


@dataclass(frozen=True)
class Site:
    """One ``sample`` statement of the model, as it stands in the program.

    ``distribution`` is abstract: its arrays are shapes and dtypes. ``bodies`` are the control-flow
    bodies around the site, outermost first; ``steps`` are the lengths of the scans among them, and
    the leading axes of the site's value. A ``fixed`` site would be latent, and the model itself
    gives its value.

    >>> import numpyro, numpyro.distributions as dist, asvi
    >>> site = asvi.Program.of(lambda: numpyro.sample("x", dist.Normal(0.0, 1.0)))["x"]
    >>> site.kind, site.shape
    ('latent', ())
    """

    name: str
    kind: SiteKind
    distribution: Distribution = field(repr=False)
    support: constraints.Constraint = field(repr=False)
    plates: tuple[Plate, ...] = ()
    bodies: BodyPath = ()
    steps: tuple[int, ...] = ()
    parents: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        return address_of(self.bodies, self.name)

    @property
    def block(self) -> tuple[str, ...]:
        """Deprecated: ``bodies`` as text, a branch of a ``cond`` apart from the ``cond``."""
        warnings.warn(
            "site.block is text.\nWrite instead:\n    site.bodies   # of kind, index and branch",
            DeprecationWarning,
            stacklevel=2,
        )
        return tuple(part for key in self.bodies for part in str(key).split("/"))

    @property
    def in_branch(self) -> bool:
        """Whether it stands in a ``cond``."""
        return any(key.kind == "cond" for key in self.bodies)

    @property
    def decisions(self) -> tuple[BodyPath, ...]:
        """The paths of the ``cond`` blocks around it, outermost first."""
        return tuple(
            (*self.bodies[:i], key._replace(branch=""))
            for i, key in enumerate(self.bodies)
            if key.kind == "cond"
        )

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Batch shape of one run of the body, plates at their subsample sizes."""
        return self.distribution.batch_shape

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.distribution.event_shape

    @property
    def full_batch_shape(self) -> tuple[int, ...]:
        """Batch shape of one run of the body, plates at their full sizes."""
        shape = list(self.batch_shape)
        for plate in self.plates:
            shape[plate.dim] = plate.size
        return tuple(shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the site's value, scans included."""
        return self.steps + self.batch_shape + self.event_shape

    @property
    def is_discrete(self) -> bool:
        return self.support is not None and bool(self.support.is_discrete)
