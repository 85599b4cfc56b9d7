"""Takes a run's state after each chunk; gives one line on the terminal that says how it goes."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from asvi.fitting.training.settings import TrainingSettings
from asvi.fitting.training.state import TrainingState

__all__ = ["ProgressLine"]


class ProgressLine:
    """A progress bar that is moved after every chunk, and so costs nothing per step."""

    def __init__(self, plan: TrainingSettings, shown: bool):
        self.plan = plan
        self._bar = Progress(
            TextColumn("[bold]{task.description:10}"),
            BarColumn(bar_width=24),
            TextColumn("ELBO {task.fields[elbo]:>10}  noise {task.fields[noise]:>7}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not shown,
            transient=True,
            auto_refresh=False,
        )
        self._line = self._bar.add_task("compile", total=plan.max_steps, elbo="", noise="")
        self._last = 0.0

    def __enter__(self) -> ProgressLine:
        self._bar.start()
        self._bar.refresh()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def show(self, state: TrainingState) -> None:
        """Show a state; at most ten times a second."""
        now = time.monotonic()
        if now - self._last < 0.1:
            return
        self._last = now
        self._bar.update(
            self._line,
            completed=state.work * self.plan.chunk,
            description=state.phase,
            elbo=f"{-state.losses[-1]:.3f}" if state.losses else "",
            noise=f"{state.noise:.2g}" if state.noise == state.noise else "",
        )
        self._bar.refresh()
