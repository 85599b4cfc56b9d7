"""Takes the command line; gives the study: fits, results.json, the table, the figures, scaling.

``python -m experiments.neural_sde`` is CPU-sized: one repetition with a small generator.
``python -m experiments.neural_sde --full`` is everything, for a GPU. A run that was stopped goes on
where it was; ``--only cifar10/filtering`` runs a part; ``--scaling`` measures speed and memory.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

from experiments.neural_sde.figures import draw_all
from experiments.neural_sde.process import PROBLEMS
from experiments.neural_sde.scaling import measure
from experiments.neural_sde.study import FULL, SMALL, Settings, Store, run
from experiments.neural_sde.table import to_markdown

FOLDER = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="everything, on a GPU")
    parser.add_argument("--only", help="a generator, a problem, or generator/problem")
    parser.add_argument("--families", help="comma-separated; all by default")
    parser.add_argument("--steps", type=int, help="of the optimiser")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no fit after")
    parser.add_argument("--scaling", action="store_true", help="speed and memory instead")
    parser.add_argument("--report", action="store_true", help="tables and figures alone")
    parser.add_argument("--out", type=Path, default=None)
    chosen = parser.parse_args()
    folder = chosen.out or FOLDER / ("full" if chosen.full else "small")
    if chosen.scaling:
        measure(folder / "scaling.json", small=not chosen.full, seconds=chosen.seconds)
        return
    store = Store(folder)
    if not chosen.report:
        settings = _settings(chosen)
        begun = time.monotonic()
        for generator in settings.generators:
            for family in settings.families:
                left = chosen.seconds - (time.monotonic() - begun)
                run(generator, family, settings, store, left)
    if store.rows:
        text = to_markdown(store.rows)
        (folder / "table.md").write_text(text + "\n")
        print(text)
        for path in draw_all(store):
            print(f"wrote {path}")


def _settings(chosen: argparse.Namespace) -> Settings:
    settings = FULL if chosen.full else SMALL
    if chosen.steps:
        settings = replace(settings, budget=replace(settings.budget, steps=chosen.steps))
    for wanted in (chosen.only or "").split("/"):
        if wanted in settings.generators:
            settings = replace(settings, generators=(wanted,))
        elif wanted in PROBLEMS:
            settings = replace(settings, problems=(wanted,))
        elif wanted:
            known = ", ".join((*settings.generators, *PROBLEMS))
            raise SystemExit(f"--only {chosen.only}: {wanted!r} is none of {known}")
    if chosen.families:
        settings = replace(settings, families=tuple(chosen.families.split(",")))
    return settings


if __name__ == "__main__":
    main()
