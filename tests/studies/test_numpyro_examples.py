"""Every model of ``benchmarks/numpyro_examples`` traces, and has the sites that are compared."""

from __future__ import annotations

import numpy as np
import pytest

import asvi
from benchmarks.numpyro_examples import (
    discrete,
    pooling,
    processes,
    regression,
    series,
    supports,
)
from benchmarks.numpyro_examples.entry import traced
from benchmarks.numpyro_examples.suite import SUITE


@pytest.mark.parametrize("name", SUITE)
def test_model_traces_and_has_what_is_compared(name):
    entry = SUITE[name]
    latent = entry.latent()
    assert latent
    for site, value in latent.items():
        assert np.isfinite(np.asarray(value, float)).all(), site
    program = asvi.Program.of(entry.model, *entry.args, **entry.kwargs)
    assert {site.name for site in program.latent} == set(latent)
    drawn = traced(entry.truth_model or entry.model, entry.args, entry.kwargs)
    continuous = {site for site, x in latent.items() if np.asarray(x).dtype.kind == "f"}
    assert set(entry.compared or continuous) <= set(drawn)


def test_no_two_models_have_one_name():
    themes = (discrete, pooling, processes, regression, series, supports)
    assert len(SUITE) == sum(len(theme.ENTRIES) for theme in themes)
