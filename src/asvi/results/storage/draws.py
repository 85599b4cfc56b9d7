"""Takes corrected draws; gives them as arrays and plain values for a file, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from asvi.fitting.correction.checks import Checks, NumberErrors
from asvi.fitting.correction.pool import Pool
from asvi.fitting.correction.result import Correction

__all__ = ["correction_from_file", "correction_to_file"]

_SITES = "draws/"
_DENSITIES = ("log_p", "log_q")
_ERRORS = ("mean_error", "sd_error", "r_hat")
_NUMBERS = ("rung", "log_evidence", "log_evidence_se", "max_error")


def correction_to_file(correction: Correction) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays. Draws are kept in single precision."""
    pool = correction.pool
    arrays = {f"{_SITES}{name}": _single(x) for name, x in pool.sites.items()}
    arrays |= {name: getattr(pool, name) for name in _DENSITIES}
    header = {name: getattr(correction, name) for name in _NUMBERS}
    errors = correction.by_number
    if errors is not None:
        header["numbers"] = errors.names
        found = {name: getattr(errors, name) for name in _ERRORS}
        arrays |= {f"errors/{name}": x for name, x in found.items() if x is not None}
    return {**header, "checks": asdict(correction.checks)}, arrays


def correction_from_file(header: Any, stored: Mapping[str, Any]) -> Correction | None:
    """The draws of a file, if it has any. There is no way to more of them."""
    if header is None:
        return None
    sites = {
        name.removeprefix(_SITES): np.asarray(x)
        for name, x in stored.items()
        if name.startswith(_SITES)
    }
    pool = Pool(sites, *(np.asarray(stored[name]) for name in _DENSITIES))
    numbers = {name: header[name] for name in _NUMBERS}
    errors: Any = None
    if "numbers" in header:
        arrays: list[Any] = [stored.get(f"errors/{n}") for n in _ERRORS]
        errors = NumberErrors(header["numbers"], *arrays)
    checks = Checks(**header["checks"])
    return Correction(pool=pool, checks=checks, by_number=errors, **numbers)


def _single(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32) if x.dtype == np.float64 else x
