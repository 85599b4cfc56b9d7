"""``python -m experiments.deep_generative``: the paper's deep generative study.

Without arguments, small samples of the three sets and few steps, for a CPU and a few minutes; with
``--full``, the whole study, meant for a GPU. Both go on where they were stopped.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from itertools import product
from pathlib import Path

from experiments.deep_generative import data, report, study
from experiments.deep_generative.by_hand import throughput
from experiments.deep_generative.model import FAMILIES, READINGS
from experiments.deep_generative.train import IMAGES, Setting

HERE = Path(__file__).parent
HEADLINE = ("sd", "grey")  # the reading and images of the first table; the README says why
CHANGED = ("epochs", "seeds", "prior_weight", "gate_gain", "learning_rate", "means")
QUICK = Setting(
    epochs=30,
    least_steps=300,
    chunk=100,
    batch=100,
    seeds=1,
    draws=20,
    repeats=5,
    judged_at_once=50,
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.deep_generative")
    parser.description = __doc__
    parser.add_argument("--full", action="store_true", help="the whole sets, 3 seeds")
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--data", type=Path, help="folder with the image sets")
    parser.add_argument("--download", action="store_true", help="fetch sets that are not there")
    parser.add_argument("--sets", nargs="+", choices=data.NAMES, default=list(data.NAMES))
    parser.add_argument("--labels", choices=("yes", "no", "both"), default="both")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--prior-weight", type=float, help="where λ starts")
    parser.add_argument("--gate-gain", type=float, help="steepness of the gate of λ")
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--means", choices=("linear", "relu"), help="of the inference network")
    parser.add_argument("--stop-after", type=float, default=float("inf"), metavar="SECONDS")
    parser.add_argument(
        "--headline", nargs=2, metavar=("READING", "IMAGES"), default=list(HEADLINE)
    )
    parser.add_argument("--throughput", action="store_true", help="steps/s beside plain JAX")
    parser.add_argument("--report", action="store_true", help="tables and figures alone")
    chosen = parser.parse_args()
    if chosen.headline[0] not in READINGS or chosen.headline[1] not in IMAGES:
        parser.error(f"--headline takes one of {READINGS} and one of {IMAGES}")
    out = chosen.out or (HERE / "results" if chosen.full else Path("out") / "deep_generative")
    out.mkdir(parents=True, exist_ok=True)
    if chosen.throughput:
        rows = [
            throughput(steps=3000 if chosen.full else 100, lanes=lanes)
            for lanes in ((1, 12) if chosen.full else (1,))
        ]
        (out / "throughput.json").write_text(json.dumps(rows, indent=1) + "\n")
        print(json.dumps(rows, indent=1))
        return
    if not chosen.report:
        setting = Setting() if chosen.full else QUICK
        given = {name: getattr(chosen, name) for name in CHANGED}
        setting = replace(setting, **{k: v for k, v in given.items() if v is not None})
        if chosen.full:
            sets = [data.load(n, chosen.data, download=chosen.download) for n in chosen.sets]
        else:
            sets = [data.sample(name) for name in chosen.sets]
        labels = {"yes": (True,), "no": (False,), "both": (False, True)}[chosen.labels]
        groups = list(product(labels, chosen.families))
        study.run(sets, setting, out, groups, chosen.stop_after)
    rows = study.collect(out)
    headline = (chosen.headline[0], chosen.headline[1])
    text = report.tables(rows, headline)
    (out / "tables.md").write_text(text)
    print(text)
    try:
        for path in report.figures(out, headline):
            print(f"wrote {path}")
    except ImportError:
        print("no matplotlib here: run again with --report where there is, for the figures")


if __name__ == "__main__":
    main()
