"""Takes a program; says what in it cannot be fitted, is slow, or has gradients that mislead."""

from __future__ import annotations

import re

from asvi.errors import PerformanceWarning, SiteError, warn_user
from asvi.program.program import Program
from asvi.program.settings import WarningSettings

__all__ = ["check_reversed_scans", "discontinuous_sites", "warn_long_loops"]


def check_reversed_scans(program: Program) -> None:
    for path in sorted(program.reversed_scans):
        for site in program.in_block(path):
            raise SiteError(
                site.name,
                "it is latent under `scan(..., reverse=True)`, where NumPyro's own handlers give "
                "values back in the wrong order (Predictive, replay, substitute)",
                "xs = jax.tree.map(lambda x: x[::-1], xs)\n"
                "carry, ys = scan(body, init, xs)            # forward over reversed inputs\n"
                "ys = jax.tree.map(lambda y: y[::-1], ys)",
            )


def warn_long_loops(program: Program, settings: WarningSettings = WarningSettings()) -> None:
    groups: dict[tuple[str, str], list[str]] = {}
    for site in program.latent:
        if not site.bodies:
            stem = re.sub(r"\d+", "#", site.name)
            groups.setdefault((stem, type(site.distribution).__name__), []).append(site.name)
    for (stem, kind), names in groups.items():
        if "#" in stem and len(names) >= settings.min_loop_sites:
            warn_user(
                f"the model draws {len(names)} sites like {names[0]!r} ({kind}) in a Python loop; "
                "compile time grows with each of them. numpyro.contrib.control_flow.scan compiles "
                "the step once, whatever the length. If the loop must stay, see "
                "docs/guides/speed.md for compiler options that cut its compile time.",
                PerformanceWarning,
            )


def discontinuous_sites(program: Program) -> frozenset[str]:
    """Continuous latents that decide a branch: path gradients do not see the density jump there.

    Their gradients come by the score function.
    """
    discrete = {site.name for site in program.latent if site.is_discrete}
    return frozenset(
        name
        for path in program.decisions
        for name in program.deciding(path)
        if name not in discrete
    )
