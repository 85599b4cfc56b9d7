"""Compiled programs are kept in a folder for later processes."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import sys
import numpy as np
import asvi
from asvi.compiling import Compiled
folder = asvi.keep_programs()
Compiled(lambda x: np.float32(3) * x + 1)(np.ones(7, np.float32))
print(folder)
"""


def test_they_are_kept_in_the_users_cache_folder(tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == str(tmp_path / "asvi")
        kept = {path.name for path in (tmp_path / "asvi").iterdir() if path.suffix != ".tmp"}
        programs = {name for name in kept if name.endswith("-cache")}
        assert programs
    assert len(programs) == len({name.split("-cache")[0] for name in programs})
