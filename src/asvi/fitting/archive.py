"""Takes arrays and plain numbers; gives one open file that holds both, written whole or not at all.

The file is a zip of ``.npy`` arrays (what ``numpy.load`` reads) and ``header.json``. Nothing in it
is ever executed.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from asvi.errors import AsviError, StoredFitError

__all__ = ["check_writable", "read_file", "whole_file", "write_file"]


def write_file(path: str | Path, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write ``header`` (JSON) and ``arrays`` to ``path``; a kill leaves the old file or the new."""
    path = Path(path)
    check_writable(path)
    with (
        whole_file(path) as partial,
        zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as bundle,
    ):
        bundle.writestr("header.json", json.dumps(header, indent=1, allow_nan=True))
        for name, array in arrays.items():
            with bundle.open(f"{_flat(name)}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Where to write in place of ``path``, which has it all in the end, or what it had before."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def read_file(path: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a file whose header says ``"kind": kind``."""
    path = Path(path)
    if not path.exists():
        raise StoredFitError(f"There is no file {path}.")
    try:
        with zipfile.ZipFile(path) as bundle:
            header = json.loads(bundle.read("header.json"))
            arrays = {}
            for name in bundle.namelist():
                if name.endswith(".npy"):
                    with bundle.open(name) as member:
                        array = np.lib.format.read_array(member, allow_pickle=False)
                    arrays[_deep(name.removesuffix(".npy"))] = array
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError) as error:
        raise StoredFitError(
            f"{path} is not a file of asvi, or it is damaged ({type(error).__name__}: {error})."
        ) from error
    if not isinstance(header, dict) or header.get("kind") != kind:
        found = header.get("kind") if isinstance(header, dict) else None
        raise StoredFitError(f"{path} holds {found or 'something else'}, not {kind}.")
    return header, arrays


def _flat(name: str) -> str:
    """A name without ``/``, which would be a folder of the zip: ``|`` stands for it."""
    return name.replace("%", "%25").replace("|", "%7C").replace("/", "|")


def _deep(name: str) -> str:
    return name.replace("|", "/").replace("%7C", "|").replace("%25", "%")


def check_writable(path: str | Path) -> None:
    """Raise, before any work is done, where ``path`` could not be written."""
    path = Path(path)
    folder = path.parent
    if path.is_dir():
        raise AsviError(f"{path} is a folder; give the name of a file in it, {path / 'fit.asvi'}.")
    if not folder.is_dir():
        raise AsviError(f"The folder {folder} does not exist. Make it first: mkdir -p {folder}")
    if not os.access(folder, os.W_OK):
        raise AsviError(f"The folder {folder} cannot be written to; choose another path.")
