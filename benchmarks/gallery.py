"""Takes pages of docs/gallery; runs their code, stores its output, its picture and NUTS beside it.

``python -m benchmarks.gallery [NAME ...]`` runs each page in a process of its own, so that its
seconds are those of a first call. They are the processor's, which mean something on a busy machine,
too. It writes what each block printed into the page, the picture ``docs/gallery/NAME.png``, a row
of ``results/gallery.json`` and the table of the gallery's index.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import split_gelman_rubin
from numpyro.infer import MCMC, NUTS

import asvi
from benchmarks import report
from benchmarks.harness import RESULTS, save

__all__ = ["FOLDER", "PAGES", "main", "outputs", "printed"]

FOLDER = Path(__file__).parent.parent / "docs" / "gallery"
PAGES = (
    "eight_schools", "radon", "penguins", "lsat", "rats", "coal_mines", "old_faithful",
    "lynx_and_hare", "oil_price", "digits",
)  # fmt: skip
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?P<text>\n```text\n(?P<out>.*?)^```\n)?", re.DOTALL | re.M
)
BESIDE = re.compile(r"(<!-- nuts -->\n).*?(<!-- /nuts -->)", re.DOTALL)


# ------------------------------------------------------------------------------ pages


def outputs(name: str) -> list[str]:
    """What the page says that its blocks print; empty where a block prints nothing."""
    return [m["out"] or "" for m in BLOCK.finditer((FOLDER / f"{name}.md").read_text())]


def printed(name: str, names: dict[str, Any]) -> list[str]:
    """What the page's blocks print, run in order in one namespace and in the page's folder."""
    matplotlib.use("Agg")
    text = (FOLDER / f"{name}.md").read_text()
    found = []
    with contextlib.chdir(FOLDER):
        for match in BLOCK.finditer(text):
            line = text[: match.start("code")].count("\n")
            code = compile("\n" * line + match["code"], f"{name}.md", "exec")
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(code, names)
            found.append("\n".join(line.rstrip() for line in out.getvalue().splitlines()))
    return [text + "\n" if text else "" for text in found]


def with_outputs(text: str, found: list[str]) -> str:
    """The page with what its blocks printed below them."""
    rest = iter(found)

    def one(match: re.Match) -> str:
        out = next(rest)
        below = f"\n```text\n{out}```\n" if out else ""
        return f"```python\n{match['code']}```\n{below}"

    return BLOCK.sub(one, text)


@contextlib.contextmanager
def noted(calls: list[dict[str, Any]]) -> Iterator[None]:
    """Notes model, arguments and seconds of every call of ``asvi.fit``."""
    fit = asvi.fit

    def timed(model: Callable, *args: Any, **options: Any) -> Any:
        begun = time.process_time()
        result = fit(model, *args, **options)
        seconds = time.process_time() - begun
        calls.append({"model": model, "args": args, "result": result, "seconds": seconds})
        return result

    asvi.fit = timed
    try:
        yield
    finally:
        asvi.fit = fit


# ------------------------------------------------------------------------------- NUTS


def coal_mines(count):
    """NUTS takes no discrete sites: the same model with the year summed out by hand."""
    years = len(count)
    rate = numpyro.sample("rate", dist.Exponential(jnp.ones(2)).to_event(1))
    early, late = (dist.Poisson(rate[i]).log_prob(count) for i in (0, 1))
    total = jnp.concatenate([jnp.zeros(1), jnp.cumsum(early - late)])[:years] + jnp.sum(late)
    numpyro.factor("count", jax.nn.logsumexp(total - jnp.log(years)))


def old_faithful(y):
    """The same model with the labels summed out by hand."""
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("kind", 2):
        center = dist.Normal(jnp.array([3.5, 70.0]), jnp.array([2.0, 20.0]))
        mean = numpyro.sample("mean", center.to_event(1))
        sd = numpyro.sample("sd", dist.HalfNormal(jnp.array([1.0, 10.0])).to_event(1))
    parts = dist.Normal(mean, sd).to_event(1)
    with numpyro.plate("eruption", len(y)):
        mixture = dist.MixtureSameFamily(dist.Categorical(share), parts)
        numpyro.sample("y", mixture, obs=y)


def penguins(species, flipper, sex, missing, mass):
    """The same model with the unknown sexes summed out by hand."""
    male = numpyro.sample("share_male", dist.Beta(1.0, 1.0))
    base = numpyro.sample("female", dist.Normal(4.0, 1.0).expand([3]).to_event(1))
    more = numpyro.sample("male_more", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    female = base[species] + slope * flipper
    at = [dist.Normal(female + s * more[species], sigma).log_prob(mass) for s in (0, 1)]
    at = jnp.stack([at[0] + jnp.log1p(-male), at[1] + jnp.log(male)])
    known = np.delete(np.arange(len(sex)), missing)
    numpyro.factor("known", at[sex[known].astype(int), known].sum())
    numpyro.factor("unknown", jax.nn.logsumexp(at[:, missing], 0).sum())


SUMMED_OUT = {"coal_mines": coal_mines, "old_faithful": old_faithful, "penguins": penguins}


def short_first(draws: dict[str, Any]) -> dict[str, np.ndarray]:
    """Old Faithful's kinds in the order of their means, so that draws of any label compare."""
    order = np.argsort(np.asarray(draws["mean"])[..., 0], -1)
    found = {"share": np.take_along_axis(np.asarray(draws["share"]), order, -1)}
    for name in ("mean", "sd"):
        found[name] = np.take_along_axis(np.asarray(draws[name]), order[..., None], -2)
    return found


def nuts(name: str, call: dict[str, Any]) -> dict[str, Any]:
    """Seconds, the worst R-hat and the worst difference of means of one chain of NUTS."""
    model, result = SUMMED_OUT.get(name, call["model"]), call["result"]
    if name == "digits":  # NUTS does not learn a network: it gets the one that was learned
        model = numpyro.handlers.substitute(model, data={"decoder": result.params["decoder"]})
    begun = time.process_time()
    mcmc = MCMC(NUTS(model), num_warmup=1000, num_samples=1000, progress_bar=False)
    mcmc.run(jax.random.key(0), *call["args"])
    draws = {n: np.asarray(x, float) for n, x in mcmc.get_samples().items() if n != "ink"}
    seconds = time.process_time() - begun
    mean = result.posterior.mean()
    if name == "old_faithful":
        draws = short_first(draws)
        ours = short_first(result.posterior.sample(jax.random.key(0), (8000,)))
        mean = {n: x.mean(0) for n, x in ours.items()}
    r_hat, worst, where, sd = 1.0, 0.0, "", result.posterior.sd()
    ratios = []
    for site, x in draws.items():
        flat, at = x.reshape(len(x), -1), np.ravel(mean[site])
        moves = flat.std(0) > 1e-6  # the corner of a Cholesky factor is 1
        if not moves.any():
            continue
        off = np.abs(flat.mean(0) - at)[moves] / flat.std(0)[moves]
        if off.max() > worst:
            worst, where = float(off.max()), site
        ratios += list(np.ravel(sd[site])[moves] / flat.std(0)[moves])
        r_hat = max(r_hat, float(np.max(split_gelman_rubin(flat[None, :, moves]))))
    found = {"seconds": seconds, "R-hat": r_hat, "worst": worst, "where": where}
    return found | {"sd": (min(ratios), max(ratios))}


# ---------------------------------------------------------------------------- results


def run(name: str) -> dict[str, Any]:
    """Runs a page, writes its outputs and its picture, and gives its row."""
    names: dict[str, Any] = {"__name__": name}
    calls: list[dict[str, Any]] = []
    with noted(calls):
        found = printed(name, names)
    call = calls[0]
    names["figure"].savefig(
        FOLDER / f"{name}.png", dpi=90, pil_kwargs={"optimize": True}, metadata={"Software": None}
    )
    verdict = str(call["result"].diagnose().verdict)
    row = {"page": f"[{title(name)}]({name}.md)", "asvi [s]": round(call["seconds"], 1)}
    row["verdict"] = verdict
    beside = nuts(name, call)
    row |= {
        "NUTS [s]": round(beside["seconds"], 1),
        "R-hat of NUTS": round(beside["R-hat"], 3),
        "means differ by at most [sd]": round(beside["worst"], 2),
    }
    said = (
        f"NUTS, one chain of 1,000 + 1,000 draws, took {beside['seconds']:.1f} s of the processor;"
        f" `asvi.fit` took {call['seconds']:.1f} s.\n"
        f"The largest difference of means is {beside['worst']:.2f} sd (`{beside['where']}`);"
        f" the largest R̂ of NUTS is {beside['R-hat']:.3f}.\n"
    )
    if name == "digits":  # the page speaks of the encoder's errors
        low, high = beside["sd"]
        said += f"Standard deviations are {low:.2f} to {high:.2f} times those of NUTS.\n"
    path = FOLDER / f"{name}.md"
    text = with_outputs(path.read_text(), found)
    path.write_text(BESIDE.sub(lambda m: m[1] + said + m[2], text))
    return row


def title(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text().splitlines()[0].removeprefix("# ")


def stored() -> dict[str, dict[str, Any]]:
    """The rows of earlier runs, by page."""
    path = RESULTS / "gallery.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    return {re.search(r"\((\w+)\.md\)", row["page"])[1]: row for row in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PAGES)}")
    parser.add_argument("--here", action="store_true", help="in this process")
    given = parser.parse_args()
    for name in given.names or PAGES:
        if name not in PAGES:
            parser.error(f"{name} is no page of the gallery")
        if not given.here:
            # Programs that an earlier run compiled would make the first call look fast.
            fresh = {k: x for k, x in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
            command = [sys.executable, "-m", "benchmarks.gallery", "--here", name]
            subprocess.run(command, check=True, env=fresh)
            continue
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*one chain.*")
            row = run(name)
        print(row, flush=True)
        rows = stored() | {name: row}
        save("gallery", [rows[page] for page in PAGES if page in rows])
    report.main()


if __name__ == "__main__":
    main()
