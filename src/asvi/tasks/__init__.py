"""Takes a name; gives an embedded task: model, data and exact answers.

>>> import asvi
>>> asvi.tasks.names()
('brownian', 'brownian-global', 'lorenz', 'lorenz-global', 'eight-schools', 'radon')
>>> task = asvi.tasks.get("brownian")
>>> guide = asvi.AutoASVI(task.model)     # task.args are the data: guide(*task.args)
>>> round(task.log_evidence, 4)
5.613
"""

from __future__ import annotations

from difflib import get_close_matches

from asvi.errors import AsviError
from asvi.tasks import hierarchical, time_series
from asvi.tasks.task import Moments, Task

__all__ = ["Moments", "Task", "get", "names"]

_TASKS = {**time_series.TASKS, **hierarchical.TASKS}


def names() -> tuple[str, ...]:
    """The names of the embedded tasks."""
    return tuple(_TASKS)


def get(name: str) -> Task:
    """The task of this name."""
    if name not in _TASKS:
        near = get_close_matches(name, _TASKS, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise AsviError(f"There is no task {name!r}.{hint}\nThe tasks are: {', '.join(_TASKS)}.")
    return _TASKS[name]()


def __dir__() -> list[str]:
    return __all__
