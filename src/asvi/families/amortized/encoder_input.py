"""Takes what plates and observed sites hold in a run; gives what an encoder reads of it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from asvi.errors import FamilyError, SiteError, with_mended
from asvi.families.amortized.data import ModelData

__all__ = ["encoder_input", "inner_axes"]


def encoder_input(
    family: Any, plate: str, gathered: ModelData, args: tuple, kwargs: dict[str, Any]
) -> Any:
    """What the encoder is given in this run: arrays whose first axis is the plate's."""
    if family.features is not None:
        return _features(family, plate, gathered, args, kwargs)
    inside = {n: o for n, o in gathered.observed.items() if plate in o.plates}
    missing = [name for name in gathered.missing if name not in inside]
    if missing:
        raise SiteError(
            missing[0],
            f"it holds no data in this call, and the encoder of plate {plate!r} needs them",
            "guide.sample_posterior(key, params, y)   # with the data of these points",
        )
    if not inside:
        where = ", ".join(gathered.observed) or "none"
        raise FamilyError(
            with_mended(
                f"plate {plate!r} holds no observed site (observed outside it: {where}), and the "
                "encoder has no data to read",
                "asvi.families.Amortized(features=lambda y: y)   # a function of the model's "
                "arguments",
            )
        )
    data = {name: observation.along(plate) for name, observation in inside.items()}
    return next(iter(data.values())) if len(data) == 1 else data


def _features(
    family: Any, plate: str, gathered: ModelData, args: tuple, kwargs: dict[str, Any]
) -> Any:
    assert family.features is not None
    try:
        given = family.features(*args, **kwargs)
    except TypeError as failure:
        raise FamilyError(
            with_mended(
                f"plate {plate!r}: features could not be called with the model's arguments "
                f"({failure})",
                "features=lambda *args, **kwargs: args[0]",
                advice="It takes what the model takes.",
            )
        ) from failure
    here = gathered.plates[plate]

    def rows(x: Any) -> jax.Array:
        x = jnp.asarray(x)
        if x.ndim and len(x) == here.size and here.rows is not None:
            return x[here.rows]
        if x.ndim and len(x) == here.taken:
            return x
        sizes = f"{here.size}" if here.rows is None else f"{here.size} or {here.taken}"
        raise FamilyError(
            with_mended(
                f"plate {plate!r}: features gave an array of shape {x.shape}, whose first axis is "
                f"not the plate's, of {sizes} points",
                "features=lambda y: y.T   # the plate's axis first",
            )
        )

    return jax.tree.map(rows, given)


def inner_axes(family: Any, plate: str, gathered: ModelData, data: Any) -> Any:
    """How many axes after the first hold a point's several observations, for each array."""
    if family.features is not None:
        return jax.tree.map(lambda _: 0, data)
    inner = {n: o.inner() for n, o in gathered.observed.items() if plate in o.plates}
    return next(iter(inner.values())) if len(inner) == 1 else inner
