"""Takes NumPyro's plain distributions; gives each its leaves, or a reason why it has none.

Wrappers (independent, transformed, truncated, mixtures, ...) are in
:mod:`asvi.distributions.wrappers`; distributions replaced by a richer one in
:mod:`asvi.distributions.substitutions`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints

from asvi.distributions.registry import (
    Decomposition,
    Leaf,
    constructed_from,
    decomposer,
    expand_leaf,
    refuse,
)

_POSITIVE, _REAL = constraints.positive, constraints.real


def _plain(cls: type, *leaves: str, fixed: tuple[str, ...] = (), **domains) -> None:
    """Register ``cls`` with its own ``arg_constraints``, some of them overridden."""
    found = {name: domains.get(name) or cls.arg_constraints[name] for name in leaves}
    decomposer(cls)(constructed_from(found, fixed))


# ------------------------------------------------------------------------- scalar, continuous

for _cls in (
    dist.Gumbel,
    dist.Laplace,
    dist.LogNormal,
    dist.Logistic,
    dist.Normal,
    dist.SoftLaplace,
):
    _plain(_cls, "loc", "scale")
for _cls in (dist.Gamma, dist.InverseGamma, dist.Gompertz):
    _plain(_cls, "concentration", "rate")
for _cls in (dist.Beta, dist.Kumaraswamy):
    _plain(_cls, "concentration1", "concentration0")
_plain(dist.AsymmetricLaplace, "loc", "scale", "asymmetry")
_plain(dist.AsymmetricLaplaceQuantile, "loc", "scale", "quantile")
_plain(dist.BetaProportion, "mean", "concentration")
_plain(dist.Dagum, "concentration", "sharpness", "scale")
_plain(dist.VonMises, "loc", "concentration")
_plain(dist.Weibull, "scale", "concentration")
# Where a parameter is the edge of the support it stays with the model.
_plain(dist.DoublyTruncatedPowerLaw, "alpha", fixed=("low", "high"))
_plain(dist.LowerTruncatedPowerLaw, "alpha", fixed=("low",))
_plain(dist.Pareto, "alpha", fixed=("scale",))


# --------------------------------------------------------------------------- vectors, matrices


def _wishart_concentration(d) -> constraints.Constraint:
    return constraints.greater_than(d.event_shape[-1] - 1.0)


for _cls in (dist.Wishart, dist.WishartCholesky, dist.InverseWishart, dist.InverseWishartCholesky):
    _plain(_cls, "concentration", "scale_tril", concentration=_wishart_concentration)
_plain(dist.Dirichlet, "concentration")
_plain(dist.LowRankMultivariateNormal, "loc", "cov_factor", "cov_diag")
_plain(
    dist.MatrixNormal,
    "loc",
    "scale_tril_row",
    "scale_tril_column",
    loc=constraints.real_matrix,  # NumPyro says real_vector
)
_plain(dist.MultivariateNormal, "loc", "scale_tril")
_plain(dist.MultivariateStudentT, "df", "loc", "scale_tril")
_plain(dist.ProjectedNormal, "concentration")
_plain(dist.CAR, "loc", "correlation", "conditional_precision", fixed=("adj_matrix", "is_sparse"))
_plain(
    dist.SineBivariateVonMises,
    "phi_loc",
    "psi_loc",
    "phi_concentration",
    "psi_concentration",
    "correlation",
)


@decomposer(dist.CirculantNormal)
def _circulant_normal(d, batch_shape, _):
    # The spectrum is a product of half-lines; the covariance row is not.
    vector = constraints.independent(_POSITIVE, 1)
    leaves = {
        "loc": Leaf(
            expand_leaf(d.loc, constraints.real_vector, batch_shape), constraints.real_vector
        ),
        "covariance_rfft": Leaf(expand_leaf(d.covariance_rfft, vector, batch_shape), vector),
    }
    return Decomposition(leaves, lambda values: dist.CirculantNormal(**values))


# -------------------------------------------------------------------------------- counts, classes

_plain(dist.BetaBinomial, "concentration1", "concentration0", fixed=("total_count",))
_plain(dist.BetaNegativeBinomial, "concentration1", "concentration0", "n")
_plain(dist.DirichletMultinomial, "concentration", fixed=("total_count", "total_count_max"))
_plain(dist.GammaPoisson, "concentration", "rate")
_plain(dist.NegativeBinomial2, "mean", "concentration", mean=_POSITIVE)
_plain(dist.OrderedLogistic, "predictor", "cutpoints")
_plain(dist.Poisson, "rate", fixed=("is_sparse",), rate=_POSITIVE)


def _logit(probs):
    tiny = jnp.finfo(jnp.result_type(probs)).tiny
    return jnp.log(jnp.maximum(probs, tiny)) - jnp.log1p(-jnp.minimum(probs, 1 - 1e-7))


def _softmax(logits):
    return jax.nn.softmax(logits, axis=-1)


def _log(probs):
    return jnp.log(jnp.maximum(probs, jnp.finfo(jnp.result_type(probs)).tiny))


def _probs_and_logits(with_probs, with_logits, squash, stretch, fixed=(), extra=(), vector=False):
    """Register a pair of classes: the update acts on probabilities, or on logits if asked."""
    probs_domain = constraints.simplex if vector else constraints.unit_interval
    logits_domain = constraints.real_vector if vector else _REAL

    def take_apart(name, domain, convert, make):
        def function(d, batch_shape, _):
            own = getattr(d, name) if type(d) is make else convert(d)
            leaves = {
                key: Leaf(
                    expand_leaf(getattr(d, key), type(d).arg_constraints[key], batch_shape),
                    type(d).arg_constraints[key],
                )
                for key in extra
            }
            leaves[name] = Leaf(expand_leaf(own, domain, batch_shape), domain)
            kept = {key: getattr(d, key) for key in fixed}
            return Decomposition(leaves, lambda values: make(**values, **kept))

        return function

    to_probs = take_apart("probs", probs_domain, lambda d: squash(d.logits), with_probs)
    to_logits = take_apart("logits", logits_domain, lambda d: stretch(d.probs), with_logits)
    decomposer(with_probs, with_logits)(to_probs)
    for name in ("logits", "natural"):
        decomposer(with_probs, with_logits, parameterization=name)(to_logits)


_scalar = (jax.nn.sigmoid, _logit)
_probs_and_logits(dist.BernoulliProbs, dist.BernoulliLogits, *_scalar)
_probs_and_logits(dist.BinomialProbs, dist.BinomialLogits, *_scalar, fixed=("total_count",))
_probs_and_logits(dist.GeometricProbs, dist.GeometricLogits, *_scalar)
_probs_and_logits(
    dist.NegativeBinomialProbs, dist.NegativeBinomialLogits, *_scalar, extra=("total_count",)
)
_probs_and_logits(dist.CategoricalProbs, dist.CategoricalLogits, _softmax, _log, vector=True)
_probs_and_logits(
    dist.MultinomialProbs,
    dist.MultinomialLogits,
    _softmax,
    _log,
    fixed=("total_count", "total_count_max"),
    vector=True,
)


@decomposer(dist.RelaxedBernoulliLogits)
def _relaxed_bernoulli(d, batch_shape, _):
    probs = constraints.unit_interval
    leaves = {
        "temperature": Leaf(expand_leaf(d.temperature, _POSITIVE, batch_shape), _POSITIVE),
        "probs": Leaf(expand_leaf(jax.nn.sigmoid(d.logits), probs, batch_shape), probs),
    }
    return Decomposition(
        leaves, lambda v: dist.RelaxedBernoulliLogits(v["temperature"], _logit(v["probs"]))
    )


decomposer(dist.RelaxedBernoulliLogits, parameterization="logits")(
    constructed_from({"temperature": _POSITIVE, "logits": _REAL})
)


# ------------------------------------------------------------------- natural parameters on request


@decomposer(dist.Normal, dist.LogNormal, parameterization="natural")
def _natural_normal(d, batch_shape, _):
    precision = expand_leaf(d.scale, _POSITIVE, batch_shape) ** -2
    leaves = {
        "precision_mean": Leaf(expand_leaf(d.loc, _REAL, batch_shape) * precision, _REAL),
        "precision": Leaf(precision, _POSITIVE),
    }
    return Decomposition(
        leaves,
        lambda v: type(d)(v["precision_mean"] / v["precision"], v["precision"] ** -0.5),
    )


@decomposer(dist.MultivariateNormal, parameterization="natural")
def _natural_multivariate_normal(d, batch_shape, _):
    matrix = constraints.positive_definite
    precision = expand_leaf(d.precision_matrix, matrix, batch_shape)
    loc = expand_leaf(d.loc, constraints.real_vector, batch_shape)
    mean = (precision @ loc[..., None])[..., 0]
    leaves = {
        "precision_mean": Leaf(mean, constraints.real_vector),
        "precision": Leaf(precision, matrix),
    }

    def rebuild(v):
        loc = jnp.linalg.solve(v["precision"], v["precision_mean"][..., None])[..., 0]
        return dist.MultivariateNormal(loc, precision_matrix=v["precision"])

    return Decomposition(leaves, rebuild)


@decomposer(dist.Poisson, parameterization="natural")
def _natural_poisson(d, batch_shape, _):
    leaves = {"log_rate": Leaf(expand_leaf(jnp.log(d.rate), _REAL, batch_shape), _REAL)}
    return Decomposition(
        leaves, lambda v: dist.Poisson(jnp.exp(v["log_rate"]), is_sparse=d.is_sparse)
    )


for _cls in (dist.Gamma, dist.Beta, dist.Dirichlet):  # natural already, up to a constant
    _names = tuple(_cls.arg_constraints)
    decomposer(_cls, parameterization="natural")(
        constructed_from({name: _cls.arg_constraints[name] for name in _names})
    )


# ------------------------------------------------------------------------------------ refused

refuse(
    dist.ImproperUniform,
    "is improper: there is no prior to update",
    "dist.Normal(0.0, 10.0)   # any proper prior, as wide as you like",
)
refuse(
    dist.EulerMaruyama,
    "hides its steps, so their structure cannot be kept",
    "def step(x, dt):\n"
    "    drift, diffusion = sde_fn(x, t)\n"
    '    x = numpyro.sample("x", dist.Normal(x + drift * dt, diffusion * jnp.sqrt(dt)))\n'
    "    return x, x\n"
    "scan(step, x0, dts)",
)
refuse(
    dist.DiscreteUniform,
    "has only bounds, which are never learned",
    'n = high - low + 1\nx = low + numpyro.sample("x", dist.Categorical(probs=jnp.full(n, 1 / n)))',
)
refuse(
    dist.GaussianCopulaBeta,
    "cannot be drawn: the inverse of its marginal cdf needs a package that does not run under "
    "current JAX",
    "dist.GaussianCopula(dist.Kumaraswamy(a, b), correlation_matrix=correlation)",
)
refuse(
    dist.TruncatedPolyaGamma,
    "has no parameters to learn",
    "dist.Gamma(concentration, rate)   # another prior on the positive numbers",
)
for _cls in (
    dist.LeftCensoredDistribution,
    dist.RightCensoredDistribution,
    dist.IntervalCensoredDistribution,
):
    refuse(
        _cls,
        "describes data, not a latent quantity",
        "numpyro.sample(..., obs=y)   # or the distribution inside it, uncensored",
    )
refuse(
    dist.Unit,
    "holds no value",
    'numpyro.factor("name", log_factor)',
)
