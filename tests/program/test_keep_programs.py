"""Compiled programs are kept in a folder for later processes."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import sys
import numpy as np
import asvi
from asvi.program.compiling import Compiled
folder = asvi.keep_programs()
Compiled(lambda x: np.float32(3) * x + 1)(np.ones(7, np.float32))
print(folder)
"""


def test_they_are_kept_in_the_users_cache_folder(tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    kept = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == str(tmp_path / "asvi")
        kept.append({p.name for p in (tmp_path / "asvi").iterdir() if p.name.endswith("-cache")})
    assert kept[0]
    assert kept[0] == kept[1]  # the second process had it already
