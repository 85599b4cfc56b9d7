"""Takes a task's name and its data; gives Pyro's AutoStructured on it (in its own venv)."""

from __future__ import annotations

import sys
import time

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from measure import write
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoStructured


def brownian_loop(y, seen):
    x = torch.zeros(())
    for t in range(30):
        x = pyro.sample(f"x_{t}", dist.Normal(x, 0.1))
        if seen[t]:
            pyro.sample(f"y_{t}", dist.Normal(x, 0.15), obs=y[t])


def eight_schools(sigma, y):
    mu = pyro.sample("mu", dist.Normal(0.0, 10.0))
    log_tau = pyro.sample("log_tau", dist.Normal(5.0, 1.0))
    theta = pyro.sample("theta", dist.Normal(mu, log_tau.exp()).expand([8]).to_event(1))
    pyro.sample("y", dist.Normal(theta, sigma).to_event(1), obs=y)


def radon(features, county, y):
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    tau = pyro.sample("tau", dist.HalfNormal(1.0))
    theta = pyro.sample("theta", dist.Normal(mu, tau).expand([85]).to_event(1))
    w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
    pyro.sample("y", dist.Normal(features @ w + theta[county.long()], sigma).to_event(1), obs=y)


def main(name: str, data: str, steps: int) -> None:
    arrays = np.load(data)
    args = [torch.as_tensor(arrays[f"arg{i}"]) for i in range(len(arrays.files))]
    model = globals()[name.replace("-", "_")]
    pyro.set_rng_seed(0)
    guide = AutoStructured(model, conditionals="normal", dependencies="linear")
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 1e-2}), Trace_ELBO())
    begin = time.perf_counter()
    svi.step(*args)
    first = time.perf_counter() - begin
    begin = time.perf_counter()
    for _ in range(steps):
        svi.step(*args)
    each = (time.perf_counter() - begin) / steps
    with torch.no_grad():
        losses = [svi.evaluate_loss(*args) for _ in range(200)]
    write(name, "pyro AutoStructured", first, 1 / each, float(np.mean(losses)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
