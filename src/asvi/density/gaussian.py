"""Takes nothing; gives the record of a Gaussian over a program's noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from asvi.density.arrowhead import Arrowhead

__all__ = ["Gaussian"]


@dataclass
class Gaussian:
    """Mean and precision over the noise, and each number's prior at the mean."""

    mean: np.ndarray
    precision: Arrowhead
    elbo: float
    loc: Any = None  # (numbers,)
    scale: Any = None
    loc_sd: np.ndarray | float = 0.0  # how far the prior location moves with the other numbers
