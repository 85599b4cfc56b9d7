"""One prior of every class that `asvi` supports, with random parameters.

``draw.real(*event)``, ``draw.positive(*event)``, ... give random parameters of shape
``batch + event``, so that two instances of a class differ in every leaf but share their support.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints, transforms


class Draw:
    """Random parameters; every call uses a new key."""

    def __init__(self, seed: int, batch: tuple[int, ...]):
        self.key, self.batch = jax.random.key(seed), batch

    def _next(self):
        self.key, key = jax.random.split(self.key)
        return key

    def real(self, *event):
        return jax.random.normal(self._next(), self.batch + event)

    def positive(self, *event, low=0.7, high=1.8):
        return jax.random.uniform(self._next(), self.batch + event, minval=low, maxval=high)

    def unit(self, *event):
        return jax.random.uniform(self._next(), self.batch + event, minval=0.25, maxval=0.75)

    def simplex(self, n):
        return jax.nn.softmax(0.5 * self.real(n))

    def tril(self, n):
        lower = 0.2 * jnp.tril(self.real(n, n), -1)
        return lower + self.positive(n)[..., None] * jnp.eye(n)

    def positive_definite(self, n):
        tril = self.tril(n)
        return tril @ jnp.swapaxes(tril, -1, -2)

    def correlation(self, n):
        matrix = self.positive_definite(n)
        d = jnp.sqrt(jnp.diagonal(matrix, axis1=-2, axis2=-1))
        return matrix / (d[..., :, None] * d[..., None, :])

    def ordered(self, n):
        return jnp.cumsum(self.positive(n), -1) - 2.0


def _bivariate_von_mises(p):
    return dist.SineBivariateVonMises(
        0.5 * p.unit(),
        0.5 * p.unit(),
        3.0 * p.positive(),
        3.0 * p.positive(),
        correlation=0.3 * p.unit(),
    )


_LOC_SCALE = (
    dist.Cauchy,
    dist.Gumbel,
    dist.Laplace,
    dist.LogNormal,
    dist.Logistic,
    dist.Normal,
    dist.SoftLaplace,
)

INSTANCES = {cls: (lambda p, cls=cls: cls(p.real(), p.positive())) for cls in _LOC_SCALE}
INSTANCES.update(
    {
        # scalar, continuous
        dist.AsymmetricLaplace: lambda p: dist.AsymmetricLaplace(
            p.real(), p.positive(), p.positive()
        ),
        dist.AsymmetricLaplaceQuantile: lambda p: dist.AsymmetricLaplaceQuantile(
            p.real(), p.positive(), p.unit()
        ),
        dist.Beta: lambda p: dist.Beta(2 * p.positive(), 2 * p.positive()),
        dist.BetaProportion: lambda p: dist.BetaProportion(p.unit(), 4 * p.positive()),
        dist.Chi2: lambda p: dist.Chi2(3 * p.positive()),
        dist.Dagum: lambda p: dist.Dagum(p.positive(), 3 * p.positive(), p.positive()),
        dist.DoublyTruncatedPowerLaw: lambda p: dist.DoublyTruncatedPowerLaw(
            p.real() - 3.0, 0.5, 3.0
        ),
        dist.Exponential: lambda p: dist.Exponential(p.positive()),
        dist.Gamma: lambda p: dist.Gamma(2 * p.positive(), p.positive()),
        dist.Gompertz: lambda p: dist.Gompertz(p.positive(), p.positive()),
        dist.HalfCauchy: lambda p: dist.HalfCauchy(p.positive()),
        dist.HalfNormal: lambda p: dist.HalfNormal(p.positive()),
        dist.InverseGamma: lambda p: dist.InverseGamma(4 * p.positive(), p.positive()),
        dist.Kumaraswamy: lambda p: dist.Kumaraswamy(2 * p.positive(), 2 * p.positive()),
        dist.Levy: lambda p: dist.Levy(0.5, p.positive()),
        dist.LogUniform: lambda p: dist.LogUniform(jnp.full(p.batch, 0.5), 4.0),
        dist.LowerTruncatedPowerLaw: lambda p: dist.LowerTruncatedPowerLaw(
            -2.0 - p.positive(), 0.5
        ),
        dist.Pareto: lambda p: dist.Pareto(0.5, 3 * p.positive()),
        dist.RelaxedBernoulliLogits: lambda p: dist.RelaxedBernoulliLogits(
            p.positive(), 0.5 * p.real()
        ),
        dist.StudentT: lambda p: dist.StudentT(5 * p.positive(), p.real(), p.positive()),
        dist.Uniform: lambda p: dist.Uniform(jnp.full(p.batch, -1.0), 2.0),
        dist.VonMises: lambda p: dist.VonMises(p.unit(), 2 * p.positive()),
        dist.Weibull: lambda p: dist.Weibull(p.positive(), 2 * p.positive()),
        # vectors and matrices
        dist.CAR: lambda p: dist.CAR(
            p.real(3),
            0.5 * p.unit(),
            p.positive(),
            jnp.array([[0, 1, 0], [1, 0, 1], [0, 1, 0.0]]),
        ),
        dist.CirculantNormal: lambda p: dist.CirculantNormal(
            p.real(4), covariance_rfft=p.positive(3)
        ),
        dist.Dirichlet: lambda p: dist.Dirichlet(2 * p.positive(3)),
        dist.GaussianCopula: lambda p: dist.GaussianCopula(
            dist.Gumbel(p.real(2), p.positive(2)), correlation_matrix=p.correlation(2)
        ),
        dist.GaussianRandomWalk: lambda p: dist.GaussianRandomWalk(p.positive(), 4),
        dist.GaussianStateSpace: lambda p: dist.GaussianStateSpace(
            3, jnp.array([[0.9, 0.1], [0.0, 0.8]]), scale_tril=p.tril(2)
        ),
        dist.InverseWishart: lambda p: dist.InverseWishart(
            5.0 + p.positive(), scale_tril=p.tril(2)
        ),
        dist.InverseWishartCholesky: lambda p: dist.InverseWishartCholesky(
            5.0 + p.positive(), scale_tril=p.tril(2)
        ),
        dist.LKJ: lambda p: dist.LKJ(3, 1.0 + p.positive()),
        dist.LKJCholesky: lambda p: dist.LKJCholesky(3, 1.0 + p.positive()),
        dist.LowRankMultivariateNormal: lambda p: dist.LowRankMultivariateNormal(
            p.real(3), 0.3 * p.real(3, 2), p.positive(3)
        ),
        dist.MatrixNormal: lambda p: dist.MatrixNormal(p.real(2, 3), p.tril(2), p.tril(3)),
        dist.MultivariateNormal: lambda p: dist.MultivariateNormal(p.real(3), scale_tril=p.tril(3)),
        dist.MultivariateStudentT: lambda p: dist.MultivariateStudentT(
            5 * p.positive(), p.real(3), p.tril(3)
        ),
        dist.ProjectedNormal: lambda p: dist.ProjectedNormal(p.real(3)),
        dist.SineBivariateVonMises: _bivariate_von_mises,
        dist.SineSkewed: lambda p: dist.SineSkewed(_bivariate_von_mises(p), 0.4 * p.unit(2)),
        dist.Wishart: lambda p: dist.Wishart(5.0 + p.positive(), scale_tril=p.tril(2)),
        dist.WishartCholesky: lambda p: dist.WishartCholesky(
            5.0 + p.positive(), scale_tril=p.tril(2)
        ),
        # NumPyro takes one scale for all of the batch.
        dist.ZeroSumNormal: lambda p: dist.ZeroSumNormal(p.positive().reshape(-1)[0], (4,)).expand(
            p.batch
        ),
        # counts and classes
        dist.BernoulliLogits: lambda p: dist.BernoulliLogits(p.real()),
        dist.BernoulliProbs: lambda p: dist.BernoulliProbs(p.unit()),
        dist.BetaBinomial: lambda p: dist.BetaBinomial(p.positive(), p.positive(), 5),
        dist.BetaNegativeBinomial: lambda p: dist.BetaNegativeBinomial(
            4 * p.positive(), p.positive(), 2 * p.positive()
        ),
        dist.BinomialLogits: lambda p: dist.BinomialLogits(p.real(), 5),
        dist.BinomialProbs: lambda p: dist.BinomialProbs(p.unit(), 5),
        dist.CategoricalLogits: lambda p: dist.CategoricalLogits(p.real(3)),
        dist.CategoricalProbs: lambda p: dist.CategoricalProbs(p.simplex(3)),
        dist.DirichletMultinomial: lambda p: dist.DirichletMultinomial(p.positive(3), 5),
        dist.GammaPoisson: lambda p: dist.GammaPoisson(2 * p.positive(), p.positive()),
        dist.GeometricLogits: lambda p: dist.GeometricLogits(p.real()),
        dist.GeometricProbs: lambda p: dist.GeometricProbs(p.unit()),
        dist.MultinomialLogits: lambda p: dist.MultinomialLogits(p.real(3), 5, total_count_max=5),
        dist.MultinomialProbs: lambda p: dist.MultinomialProbs(p.simplex(3), 5, total_count_max=5),
        dist.NegativeBinomial2: lambda p: dist.NegativeBinomial2(
            3 * p.positive(), 2 * p.positive()
        ),
        dist.NegativeBinomialLogits: lambda p: dist.NegativeBinomialLogits(
            3 * p.positive(), p.real()
        ),
        dist.NegativeBinomialProbs: lambda p: dist.NegativeBinomialProbs(
            3 * p.positive(), p.unit()
        ),
        dist.OrderedLogistic: lambda p: dist.OrderedLogistic(p.real(), p.ordered(3)),
        dist.Poisson: lambda p: dist.Poisson(3 * p.positive()),
        # gates and mixtures
        dist.HurdleGamma: lambda p: dist.HurdleGamma(p.unit(), 2 * p.positive(), p.positive()),
        dist.HurdleLogNormal: lambda p: dist.HurdleLogNormal(p.unit(), p.real(), p.positive()),
        dist.HurdleLogits: lambda p: dist.HurdleLogits(dist.Poisson(3 * p.positive()), p.real()),
        dist.HurdlePoisson: lambda p: dist.HurdlePoisson(p.unit(), 3 * p.positive()),
        dist.HurdleProbs: lambda p: dist.HurdleProbs(dist.Poisson(3 * p.positive()), p.unit()),
        dist.MixtureGeneral: lambda p: dist.MixtureGeneral(
            dist.Categorical(probs=p.simplex(2)),
            [dist.Normal(p.real(), p.positive()), dist.Laplace(p.real(), p.positive())],
        ),
        dist.MixtureSameFamily: lambda p: dist.MixtureSameFamily(
            dist.Categorical(probs=p.simplex(2)), dist.Normal(p.real(2), p.positive(2))
        ),
        dist.ZeroInflatedLogits: lambda p: dist.ZeroInflatedLogits(
            dist.Poisson(3 * p.positive()), p.real()
        ),
        dist.ZeroInflatedPoisson: lambda p: dist.ZeroInflatedPoisson(p.unit(), 3 * p.positive()),
        dist.ZeroInflatedProbs: lambda p: dist.ZeroInflatedProbs(
            dist.Poisson(3 * p.positive()), p.unit()
        ),
        # bounds
        dist.LeftTruncatedDistribution: lambda p: dist.LeftTruncatedDistribution(
            dist.Normal(p.real(), p.positive()), low=-1.0
        ),
        dist.LeftTruncatedGamma: lambda p: dist.LeftTruncatedGamma(
            dist.Gamma(2 * p.positive(), p.positive()), low=0.5
        ),
        dist.RightTruncatedDistribution: lambda p: dist.RightTruncatedDistribution(
            dist.Normal(p.real(), p.positive()), high=1.0
        ),
        dist.RightTruncatedGamma: lambda p: dist.RightTruncatedGamma(
            dist.Gamma(2 * p.positive(), p.positive()), high=2.0
        ),
        dist.TwoSidedTruncatedDistribution: lambda p: dist.TwoSidedTruncatedDistribution(
            dist.Normal(p.real(), p.positive()), low=-1.0, high=1.5
        ),
        dist.TwoSidedTruncatedGamma: lambda p: dist.TwoSidedTruncatedGamma(
            dist.Gamma(2 * p.positive(), p.positive()), low=0.5, high=3.0
        ),
        # wrappers
        dist.ExpandedDistribution: lambda p: dist.Normal(p.real()[..., None], 1.5).expand(
            (*p.batch, 2)
        ),
        dist.FoldedDistribution: lambda p: dist.FoldedDistribution(
            dist.Normal(0.0 * p.real(), p.positive())  # elsewhere the stand-in is not the prior
        ),
        dist.Independent: lambda p: dist.Gamma(2 * p.positive(3), p.positive(3)).to_event(1),
        dist.MaskedDistribution: lambda p: dist.Normal(p.real(), p.positive()).mask(
            jnp.ones(p.batch, bool)
        ),
        dist.TransformedDistribution: lambda p: dist.TransformedDistribution(
            dist.StudentT(5 * p.positive(), p.real(), p.positive()),
            [
                transforms.AffineTransform(p.real(), -p.positive()),
                transforms.ExpTransform(),
                transforms.PowerTransform(0.5 * p.positive()),
                transforms.AffineTransform(0.0, 2.0, domain=constraints.positive),
            ],
        ),
    }
)

# Known to `asvi`, with nothing to learn.
WITHOUT_LEAVES = {dist.Delta}
