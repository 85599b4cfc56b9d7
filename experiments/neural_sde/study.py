"""Takes a generator and a problem; gives rows of results, one for each family and repetition.

Results are written after every family, so that a run that was stopped goes on where it was:
``results.json`` holds the rows, ``draws_*.npz`` what the figures need.
"""

from __future__ import annotations

import json
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

import asvi
from experiments.neural_sde import generator as generators
from experiments.neural_sde.fitting import FAMILIES, Budget, Fitter, Lanes, families
from experiments.neural_sde.process import FRAMES, NOISE, PROBLEMS, Episode, simulate

__all__ = ["FULL", "SMALL", "WEIGHTS", "Settings", "Store", "episodes_of", "run"]

WEIGHTS = Path(__file__).parent / "weights"


@dataclass(frozen=True)
class Settings:
    """What is run: CPU-sized, or everything."""

    generators: tuple[str, ...]
    repetitions: int
    budget: Budget
    noise: float = NOISE
    problems: tuple[str, ...] = PROBLEMS
    families: tuple[str, ...] = FAMILIES
    seed: int = 0


SMALL = Settings(("small",), 1, Budget(1000, draws=1, chunk=250, judge_draws=200, judge_batch=20))
FULL = Settings(("cifar10", "fashion"), 5, Budget())


class Store:
    """The results of a study in a folder: rows by generator, problem, family and repetition."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "results.json"

    @property
    def content(self) -> dict[str, Any]:
        """All that is stored."""
        return json.loads(self.path.read_text()) if self.path.exists() else {"rows": [], "fits": []}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows."""
        return self.content["rows"]

    def has(self, label: dict[str, str], settings: Settings) -> bool:
        """Whether the fits of this name are there already, with the same settings."""
        wanted = {**label, "settings": _plain(settings)}
        return any(
            all(fit[key] == value for key, value in wanted.items()) for fit in self.content["fits"]
        )

    def add(self, rows: list[dict[str, Any]], fit: dict[str, Any]) -> None:
        """Put rows of one fit in, in place of earlier ones of the same name."""
        name = ("generator", "problem", "family")
        mine = tuple(fit[key] for key in name)
        content = self.content
        for kind, new in (("rows", rows), ("fits", [fit])):
            others = [r for r in content[kind] if tuple(r[key] for key in name) != mine]
            content[kind] = sorted([*others, *new], key=lambda r: [r[key] for key in name])
        content["versions"] = {
            "python": platform.python_version(),
            "jax": jax.__version__,
            "numpyro": numpyro.__version__,
            "asvi": asvi.__version__,
            "device": jax.devices()[0].device_kind,
        }
        partial = self.path.with_suffix(".part")
        partial.write_text(json.dumps(content, indent=1) + "\n")
        partial.replace(self.path)

    def pictures(self, generator: str, problem: str, family: str) -> Path:
        """The file with what figures need: small arrays of the first repetition."""
        return self.folder / f"draws_{generator}_{problem}_{family.replace(' ', '_')}.npz"


def episodes_of(generator: Any, problem: str, settings: Settings) -> Episode:
    """The repetitions of a problem; filtering and bridging see the same paths and noise."""
    keys = jax.random.split(jax.random.key(settings.seed), settings.repetitions)

    def one(key: jax.Array) -> Episode:
        return simulate(key, generator, problem, noise=settings.noise)

    return jax.jit(jax.vmap(one))(keys)


def run(name: str, family: str, settings: Settings, store: Store, seconds: float) -> None:
    """Fit one family to the problems of one generator, if there is time; skip what is stored."""
    deadline = time.monotonic() + seconds
    generator = generators.load(WEIGHTS / f"{name}.npz")
    chosen = families(generator.latent, FRAMES)[family]
    fitter = Fitter(generator, chosen, settings.budget, noise=settings.noise)
    for problem in settings.problems:
        label = {"generator": name, "problem": problem, "family": family}
        title = " / ".join(label.values())
        if store.has(label, settings):
            print(f"{title}: stored already", flush=True)
            continue
        if time.monotonic() > deadline:
            print(f"{title}: left for another call", flush=True)
            continue
        print(title, flush=True)
        episodes = episodes_of(generator, problem, settings)
        key = jax.random.key(settings.seed + 1)
        lanes = fitter(episodes, key=key, told=lambda line: print(line, flush=True))
        rows = [{**label, **row} for row in _rows(generator, episodes, lanes)]
        account = {
            **label,
            "settings": _plain(settings),
            "parameters": lanes.parameters,
            "seconds": round(lanes.seconds, 1),
            "first_chunk_seconds": round(lanes.first_seconds, 1),
            "losses": np.round(lanes.losses, 2).tolist(),
        }
        np.savez_compressed(store.pictures(**label), **_pictures(generator, episodes, lanes))
        store.add(rows, account)
        values = ", ".join(f"{r['neg_elbo']:.1f} ± {r['neg_elbo_se']:.1f}" for r in rows)
        print(f"  −ELBO {values}; {lanes.seconds:.0f} s", flush=True)


def _rows(generator: Any, episodes: Episode, lanes: Lanes) -> list[dict[str, Any]]:
    """One row a repetition; errors are over all frames, seen or not, against the clean truth."""
    mean = jnp.mean(lanes.draws, 1)
    show = jax.jit(generator)
    of_images = jnp.sqrt(jnp.mean((show(mean) - show(episodes.path)) ** 2, (1, 2, 3, 4)))
    of_paths = jnp.sqrt(jnp.mean((mean - episodes.path) ** 2, (1, 2)))
    return [
        {
            "repetition": i,
            "neg_elbo": float(lanes.neg_elbo[i]),
            "neg_elbo_se": float(lanes.neg_elbo_se[i]),
            "rmse_image": float(of_images[i]),
            "rmse_latent": float(of_paths[i]),
        }
        for i in range(len(mean))
    ]


def _pictures(generator: Any, episodes: Episode, lanes: Lanes) -> dict[str, Any]:
    show = jax.jit(generator)
    arrays = {
        "truth": show(episodes.path[0]),
        "noisy": episodes.frames[0],
        "seen": episodes.seen[0],
        "mean": show(jnp.mean(lanes.draws[0], 0)),
        "draws": show(jnp.asarray(lanes.draws[0, :4])),
    }
    return {key: np.asarray(x, bool if key == "seen" else np.float16) for key, x in arrays.items()}


def _plain(settings: Settings) -> dict[str, Any]:
    """What a fit depends on, as JSON gives it back."""
    kept = asdict(settings)
    for name in ("generators", "problems", "families"):
        kept.pop(name)
    return json.loads(json.dumps(kept))
