"""Takes what a user calls a family, as an object, a name, or a guide of NumPyro; gives a family."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from numpyro.infer.autoguide import AutoGuide

from asvi.errors import FamilyError
from asvi.families.joint.numpyro_guide import NumPyroGuide
from asvi.families.protocol import AnyFamily, families_by_name

__all__ = ["as_family"]


def as_family(family: Any) -> Any:
    """The family, or families by site, that a user means; None where nothing was said.

    >>> as_family("StructuredNormal"), as_family({"theta*": "StructuredNormal"})
    (StructuredNormal(blocks=True), {'theta*': StructuredNormal(blocks=True)})
    >>> from numpyro.infer.autoguide import AutoNormal
    >>> as_family(AutoNormal)
    NumPyroGuide(AutoNormal)
    >>> as_family("Copuled")
    Traceback (most recent call last):
    ...
    asvi.errors.FamilyError: family='Copuled' is no family's name...
    """
    if isinstance(family, Mapping):
        return {pattern: as_family(one) for pattern, one in family.items()}
    if isinstance(family, str):
        known = {n: c for n, c in families_by_name().items() if c is not NumPyroGuide}
        if family not in known:
            names = ", ".join(sorted(known))
            raise FamilyError(
                f"family={family!r} is no family's name; there are {names}.\n"
                'Write instead:\n    asvi.fit(model, y, family="Coupled")'
            )
        return known[family]()
    if isinstance(family, AutoGuide):
        return NumPyroGuide(family)
    if inspect.isclass(family) and issubclass(family, AutoGuide):
        return NumPyroGuide(family)
    if inspect.isclass(family) and issubclass(family, AnyFamily):
        return family()
    if family is None or isinstance(family, AnyFamily):
        return family
    raise FamilyError(
        f"family={family!r} is neither a family nor a dict of them.\n"
        "Write family=asvi.families.MeanField(), or family={'theta*': asvi.families.MeanField()}."
    )
