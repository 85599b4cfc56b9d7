"""Takes a path, or nothing; gives the data and the reference draws of posteriordb.

The files are read as posteriordb's repository lays them out, under ``posterior_database``:
``posteriors/NAME.json`` names the data set, the reference draws and the sizes of the parameters;
``data/data/*.json.zip`` and ``reference_posteriors/draws/draws/*.json.zip`` hold numbers.
"""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

VARIABLES = ("POSTERIORDB", "POSTERIOR_DB_PATH")

NOT_FOUND = """posteriordb is not at hand. Its data are no part of this repository. Either
  git clone https://github.com/stan-dev/posteriordb
  export POSTERIORDB=posteriordb/posterior_database    # or pass this path
or
  pip install posteriordb    # this package then downloads each file when it is asked for"""


class DatabaseNotFound(Exception):
    """Neither a path nor the PyPI package leads to posteriordb."""


class Source(Protocol):
    """What finds the files of a posterior: `Folder`, or a database of the PyPI package."""

    def get_posterior_info(self, name: str) -> dict[str, Any]: ...

    def get_dataset_path(self, name: str) -> str | Path: ...

    def get_reference_draws_path(self, name: str) -> str | Path: ...


@dataclass(frozen=True)
class Folder:
    """The folder ``posterior_database`` on this machine."""

    path: Path

    def get_posterior_info(self, name: str) -> dict[str, Any]:
        return json.loads((self.path / "posteriors" / f"{name}.json").read_text())

    def get_dataset_path(self, name: str) -> Path:
        return self.path / "data" / "data" / f"{name}.json.zip"

    def get_reference_draws_path(self, name: str) -> Path:
        reference = self.get_posterior_info(name)["reference_posterior_name"]
        return self.path / "reference_posteriors" / "draws" / "draws" / f"{reference}.json.zip"


def source(path: str | os.PathLike | None = None) -> Source:
    """The database at ``path``, else where `VARIABLES` point, else the PyPI package's download."""
    for place in (path, *(os.environ.get(variable) for variable in VARIABLES)):
        if place:
            return Folder(_database_folder(Path(place)))
    try:
        from posteriordb import PosteriorDatabaseGithub
    except ImportError:
        raise DatabaseNotFound(NOT_FOUND) from None
    return PosteriorDatabaseGithub(repo="stan-dev/posteriordb")


def _database_folder(path: Path) -> Path:
    """The folder itself, or the one inside a clone of posteriordb."""
    for folder in (path, path / "posterior_database"):
        if (folder / "posteriors").is_dir():
            return folder
    raise DatabaseNotFound(f"{path} has no folder 'posteriors' in it.\n{NOT_FOUND}")


@dataclass(frozen=True)
class Record:
    """All that posteriordb stores about one posterior.

    Numbers of an array have Stan's names: ``beta[2]`` is the second number of ``beta``.
    """

    name: str
    source: Source

    @cached_property
    def info(self) -> dict[str, Any]:
        return self.source.get_posterior_info(self.name)

    @cached_property
    def data(self) -> dict[str, Any]:
        """The data block by name; arrays are NumPy arrays of float or int."""
        stored = _read_zip(self.source.get_dataset_path(self.info["data_name"]))
        return {k: np.asarray(v) if isinstance(v, list) else v for k, v in stored.items()}

    @cached_property
    def draws(self) -> dict[str, np.ndarray]:
        """Reference draws of each number, shaped (chains, draws)."""
        chains = _read_zip(self.source.get_reference_draws_path(self.name))
        return {k: np.array([chain[k] for chain in chains], float) for k in chains[0]}

    @cached_property
    def reference(self) -> dict[str, tuple[float, float]]:
        """Mean and standard deviation of each number's reference draws."""
        return {k: (float(x.mean()), float(x.std(ddof=1))) for k, x in self.draws.items()}

    @property
    def size(self) -> int:
        """How many numbers the parameters have, as posteriordb counts them."""
        return sum(int(np.prod(sizes)) for sizes in self.info["dimensions"].values())


def _read_zip(path: str | Path) -> Any:
    """The one JSON file inside a zip."""
    with zipfile.ZipFile(path) as folder:
        return json.loads(folder.read(folder.namelist()[0]))
