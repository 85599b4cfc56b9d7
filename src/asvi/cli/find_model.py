"""Takes ``my_model.py:model`` or a task's name; gives the model and its data (command line)."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from asvi import tasks
from asvi.errors import AsviError

__all__ = ["find_model"]


def find_model(where: str) -> tuple[Callable, tuple, str]:
    """The model, its embedded arguments (for a task), and the path to find it again."""
    if ":" not in where:
        if where.endswith(".py"):
            raise AsviError(f"Say which function of {where} is the model: {where}:model")
        task = tasks.get(where)
        return task.model, task.args, where
    file, _, name = where.rpartition(":")
    path = Path(file)
    if not path.exists():
        raise AsviError(f"There is no file {file}.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise AsviError(f"{file} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise AsviError(f"{file} cannot be imported:\n{_where(error, path)}") from error
    finally:
        sys.path.pop(0)
    model = getattr(module, name, None)
    if not callable(model):
        functions = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise AsviError(
            f"{file} has no function {name!r}; it has {', '.join(functions) or 'none'}."
        )
    return model, (), f"{path.resolve()}:{name}"


def _where(error: Exception, path: Path) -> str:
    """The user's own lines of a traceback, and the error."""
    home = path.parent.resolve()
    calls = [
        call
        for call in traceback.extract_tb(error.__traceback__)
        if home in Path(call.filename).resolve().parents
    ]
    lines = [f'  File "{c.filename}", line {c.lineno}\n    {c.line}' for c in calls]
    if isinstance(error, SyntaxError):
        lines.append(f'  File "{error.filename}", line {error.lineno}\n    {error.text or ""}')
    return "\n".join([*lines, f"{type(error).__name__}: {error}"])
