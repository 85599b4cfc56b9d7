"""Takes the path of a module of 0.1; gives the module that it is today, for one version more.

A finder at the end of ``sys.meta_path``: it is asked only for what is nowhere else, so that
``import asvi.posterior`` and ``from asvi.posterior import Posterior`` go on, with a warning.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from asvi.results.old_names import GONE_IN, MODULES

__all__ = ["OldPaths", "install"]


class OldPaths(MetaPathFinder, Loader):
    """Finds ``asvi.<old name>``, and puts today's module in its place."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        found = package == "asvi" and name in MODULES
        return ModuleSpec(fullname, self, origin=MODULES[name].to) if found else None

    def exec_module(self, module: ModuleType) -> None:
        moved = MODULES[module.__name__.rpartition(".")[2]]
        if not moved.is_public:
            warnings.warn(
                f"`{module.__name__}` is now `{moved.to}`; the old path goes in {GONE_IN}.",
                FutureWarning,
                stacklevel=2,
            )
        today = import_module(moved.to)
        if moved.renamed:
            vars(module).update({k: v for k, v in vars(today).items() if not k.startswith("__")})
            vars(module).update({old: getattr(today, new) for old, new in moved.renamed.items()})
        else:  # the import takes what lies here at its end
            sys.modules[module.__name__] = today


def install() -> None:
    """Ask for old paths after all that is there has been asked."""
    if not any(isinstance(finder, OldPaths) for finder in sys.meta_path):
        sys.meta_path.append(OldPaths())
