"""Takes a run's state after each chunk; gives one line that says how it goes.

It is tqdm's, which knows terminals and notebooks.
"""

from __future__ import annotations

import sys
import time
import warnings
from types import TracebackType
from typing import Any

from asvi.fitting.training.settings import TrainingSettings
from asvi.fitting.training.state import TrainingState

__all__ = ["ProgressLine", "can_be_seen"]


def can_be_seen() -> bool:
    """Whether somebody may look: there is a terminal, or a notebook."""
    stderr = sys.stderr
    is_terminal = stderr is not None and not stderr.closed and stderr.isatty()
    return is_terminal or "ipykernel" in sys.modules


class ProgressLine:
    """A progress bar that is moved after every chunk, and so costs nothing per step."""

    def __init__(self, plan: TrainingSettings, shown: bool):
        self.plan = plan
        self._bar: Any = _bar(plan.max_steps) if shown else None
        self._last = 0.0

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def show(self, state: TrainingState) -> None:
        """Show a state; at most ten times a second."""
        now = time.monotonic()
        if self._bar is None or now - self._last < 0.1:
            return
        self._last = now
        said = {}
        if state.losses:
            said["ELBO"] = f"{-state.losses[-1]:.3f}"
        if state.noise == state.noise:
            said["noise"] = f"{state.noise:.2g}"
        self._bar.set_description(state.phase, refresh=False)
        self._bar.set_postfix(said, refresh=False)
        self._bar.n = min(state.work * self.plan.chunk, self._bar.total)
        self._bar.refresh()


def _bar(total: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm's own, of a notebook without widgets
        from tqdm.auto import tqdm
    return tqdm(total=total, desc="compile", unit=" steps", leave=False, dynamic_ncols=True)
