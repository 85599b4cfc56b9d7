"""Public names are those that are documented, and no others."""

from __future__ import annotations

import importlib

import pytest

import asvi

PUBLIC = {
    "asvi": """
        ELBO AsviError AsviWarning AutoASVI DataWarning Explanation FamilyError Fit InternalError
        Interpretation LossError ModelError PerformanceWarning Posterior Program Report Site
        SiteError StoredFitError Training Verdict VerdictWarning __version__ autoguide check errors
        families fit keep_programs load natural_units plot register_parameters register_stand_in
        show_versions tasks
    """,
    "asvi.families": """
        Amortized ConvexUpdate Coupled Family JointFamily MeanField Parameter SetEncoder
        StructuredNormal baselines decompose
    """,
    "asvi.families.baselines": "AR1 InverseAutoregressiveFlow LinearCoupling MultivariateNormal",
    "asvi.plot": "graph losses pairs ppc prior_posterior prior_weights probabilities series",
    "asvi.errors": """
        AsviError AsviWarning DataWarning FamilyError InternalError LossError ModelError
        NotHeldError PerformanceWarning SiteError StoredFitError VerdictWarning
    """,
    "asvi.tasks": "Moments Task get names",
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_modules_have_the_documented_names(module):
    wanted = PUBLIC[module].split()
    found = importlib.import_module(module)
    assert sorted(wanted) == sorted(dir(found))
    assert all(hasattr(found, name) for name in wanted)
    if module not in ("asvi.errors", "asvi"):
        assert sorted(found.__all__) == sorted(wanted)


def test_versions_are_told(capsys):
    asvi.show_versions()
    told = capsys.readouterr().out
    assert f"asvi        {asvi.__version__}\n" in told
    assert "numpyro" in told
