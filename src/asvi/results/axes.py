"""Takes a model's sites as they are met; gives names of their axes, and labels along these.

An axis is named by its ``scan``, its plate, or ``infer={"event_dims": [...]}`` at the site, as in
ArviZ. A name is one axis of one length in all that is handed over: where it is not, its length is
put to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asvi.errors import AsviError
from asvi.program.addresses import BodyPath
from asvi.program.columns import Labels
from asvi.program.control_flow.interpretation import Interpretation
from asvi.program.site import Site

__all__ = ["Axes", "Met", "Notes", "dimensions", "of_deterministic"]

#: Names that ArviZ has for the axes of draws.
_TAKEN = ("chain", "draw", "sample")


@dataclass(frozen=True)
class Met:
    """What a statement says of its axes: bodies and plates (name, axis, length), and names."""

    path: BodyPath
    plates: tuple[tuple[str, int, int], ...]
    event_dims: tuple[str, ...]


class Notes(Interpretation):
    """Notes it of every site and deterministic site, in ``met``."""

    def __init__(self, met: dict[str, Met]):
        super().__init__()
        self.met = met

    def visit(self, msg: dict[str, Any]) -> None:
        self._note(msg)

    def visit_other(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "deterministic":
            self._note(msg)

    def _note(self, msg: dict[str, Any]) -> None:
        plates = tuple((f.name, f.dim, f.size) for f in msg.get("cond_indep_stack") or ())
        names = (msg.get("infer") or {}).get("event_dims") or ()
        self.met[msg["name"]] = Met(self.body.path, plates, tuple(map(str, names)))


# ------------------------------------------------------------------------------- names of a site


def dimensions(site: Site, event_dims: Sequence[str] = ()) -> list[str]:
    """Names of a site's axes: scans, then plates, then what is left.

    >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist
    >>> from asvi.program import Program
    >>> def model():
    ...     with numpyro.plate("school", 8):
    ...         numpyro.sample("theta", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
    >>> site = Program.of(model)["theta"]
    >>> dimensions(site), dimensions(site, ["year"])
    (['school', 'theta_dim_0'], ['school', 'year'])
    """
    batch, events = len(site.batch_shape), len(site.event_shape)
    plates = [(plate.name, plate.dim) for plate in site.plates]
    return _scans(site.bodies) + _own(site.name, batch, events, plates, event_dims)


def of_deterministic(name: str, met: Met, shape: tuple[int, ...]) -> list[str]:
    """Names of a deterministic site's axes: its plates are found by their lengths."""
    scans = _scans(met.path)[: len(shape)]
    own = shape[len(scans) :]
    least = max((-dim for _, dim, _ in met.plates), default=0)
    for batch in range(least, len(own) + 1):
        if all(own[batch + dim] == size for _, dim, size in met.plates):
            plates = [(plate, dim) for plate, dim, _ in met.plates]
            return scans + _own(name, batch, len(own) - batch, plates, met.event_dims)
    return scans + _own(name, 0, len(own), [], met.event_dims)


def _scans(path: BodyPath) -> list[str]:
    """A name for each scan around a statement: that of a scan in a scan begins with the outer's."""
    names, before = [], []
    for part in path:
        before.append(str(part).replace("/", "_"))
        if part.kind == "scan":
            names.append("_".join([*before, "step"]))
    return names


def _own(
    name: str, batch: int, events: int, plates: list[tuple[str, int]], event_dims: Sequence[str]
) -> list[str]:
    found: list[str | None] = [None] * (batch + events)
    for plate, dim in plates:
        found[batch + dim] = plate
    free = [k for k, x in enumerate(found) if x is None]
    if len(event_dims) == events:  # else they are those of all axes that have no name
        free = list(range(batch, batch + events))
    for k, event_dim in zip(free, event_dims, strict=False):
        found[k] = event_dim
    left = iter(range(len(found)))
    return [x or f"{name}_dim_{next(left)}" for x in found]


# ------------------------------------------------------------------------------------ all of them


class Axes:
    """Names of the axes of all variables, and labels along them.

    :param shapes: of each variable, without the axes of draws.
    :param names: what its axes would be called, each for itself.

    >>> axes = Axes({"a": (3,), "b": (5,), "i": (3,)}, {"a": ["i"], "b": ["j"], "i": ["i"]})
    >>> axes.names
    {'a': ['i_dim'], 'b': ['j'], 'i': ['i_dim']}
    >>> Axes({"a": (3,), "b": (5,)}, {"a": ["i"], "b": ["i"]}).names
    {'a': ['i_3'], 'b': ['i_5']}
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], names: Mapping[str, list[str]]):
        own = {
            variable: _told_apart(variable, names.get(variable, []), shape, (*shapes, *_TAKEN))
            for variable, shape in shapes.items()
        }
        lengths: dict[str, set[int]] = {}
        for variable, shape in shapes.items():
            for name, length in zip(own[variable], shape, strict=True):
                lengths.setdefault(name, set()).add(length)
        self.names = {
            variable: [
                name if len(lengths[name]) == 1 else f"{name}_{length}"
                for name, length in zip(own[variable], shape, strict=True)
            ]
            for variable, shape in shapes.items()
        }
        self.lengths = {
            name: length
            for variable, shape in shapes.items()
            for name, length in zip(self.names[variable], shape, strict=True)
        }
        self.labels: dict[str, np.ndarray] = {}

    def rename(self, dims: Mapping[str, Sequence[str | None]]) -> None:
        """Take a user's own names for the axes of some variables."""
        for variable, given in dims.items():
            names = self.names.get(variable)
            if names is None or len(given) > len(names):
                known = ", ".join(f"{n} ({len(x)} axes)" for n, x in self.names.items())
                raise AsviError(f"dims: no {len(given)} axes of {variable!r}; there are {known}.")
            lengths = [self.lengths[name] for name in names]
            for k, name in enumerate(given):
                if name is None:
                    continue
                if self.lengths.setdefault(name, lengths[k]) != lengths[k]:
                    raise AsviError(
                        f"dims: {name!r} has length {self.lengths[name]} elsewhere, and "
                        f"{lengths[k]} as axis {k} of {variable!r}."
                    )
                names[k] = name

    def label(self, found: Iterable[Labels], named: Iterable[str]) -> None:
        """Take labels that came with the data, where it is plain of which of the axes they are.

        Those of the name of an axis are; else there is one axis of this length among those that
        the model names, and one set of labels of this length.
        """
        found, named = list(found), [name for name in dict.fromkeys(named) if name in self.lengths]
        for name in named:
            length = self.lengths[name]
            fitting = [labels for labels in found if len(labels.values) == length]
            own = [labels for labels in fitting if labels.name == name]
            if not own and sum(self.lengths[other] == length for other in named) > 1:
                continue
            sets = {tuple(labels.values.tolist()): labels for labels in own or fitting}
            if len(sets) == 1:
                self.labels[name] = next(iter(sets.values())).values

    def take_coords(self, coords: Mapping[str, Any]) -> None:
        """Take a user's own labels."""
        for name, values in coords.items():
            values = np.asarray(values)
            if name in self.lengths and len(values) != self.lengths[name]:
                raise AsviError(
                    f"coords: {name!r} has {len(values)} labels, and the axis is of length "
                    f"{self.lengths[name]}."
                )
            self.labels[name] = values

    def coords(self, name: str, length: int) -> np.ndarray:
        """Labels along an axis: numbers, where there are no others."""
        labels = self.labels.get(name)
        return np.arange(length) if labels is None or len(labels) != length else labels

    def of_array(self, variable: str, shape: tuple[int, ...], from_left: bool = True) -> list[str]:
        """Names for an array of a variable, which may lack axes, on the right or on the left."""
        names = self.names.get(variable, [])
        if len(shape) < len(names):
            names = names[: len(shape)] if from_left else names[len(names) - len(shape) :]
        names = [f"{variable}_axis_{k}" for k in range(len(shape) - len(names))] + names
        return [
            name if self.lengths.get(name) == length else f"{variable}_axis_{k}"
            for k, (name, length) in enumerate(zip(names, shape, strict=True))
        ]

    def of_length(self, variable: str, shape: tuple[int, ...], named: Iterable[str]) -> list[str]:
        """Names for an array that is no site's: of axes that the model names, by their lengths."""
        named, found = [name for name in dict.fromkeys(named) if name in self.lengths], []
        for k, length in enumerate(shape):
            fitting = [name for name in named if self.lengths[name] == length]
            is_plain = len(fitting) == 1 and fitting[0] not in found
            found.append(fitting[0] if is_plain else f"{variable}_dim_{k}")
        return found


def _told_apart(
    variable: str, names: list[str], shape: tuple[int, ...], taken: Iterable[str]
) -> list[str]:
    """One name for each axis, none of it a variable's, and no two the same."""
    found: list[str] = []
    for k in range(len(shape)):
        name = names[k] if len(names) == len(shape) else f"{variable}_dim_{k}"
        name = f"{name}_dim" if name in taken else name
        found.append(f"{variable}_dim_{k}" if name in found else name)
    return found
