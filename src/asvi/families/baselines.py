"""Takes a model; gives the families that structured ones are compared with in papers.

>>> import numpyro, numpyro.distributions as dist, asvi
>>> def model(y):
...     mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
...     numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
>>> family = asvi.families.baselines.MultivariateNormal()
>>> result = asvi.fit(model, 2.0, family=family, training=asvi.Training(num_steps=2000))
>>> bool(abs(result.posterior.mean()["mu"] - 1.98) < 0.1)
True
"""

from asvi.families.joint.autoregressive_flow import InverseAutoregressiveFlow
from asvi.families.joint.linear_chain import AR1, LinearCoupling
from asvi.families.joint.multivariate_normal import MultivariateNormal

__all__ = ["AR1", "InverseAutoregressiveFlow", "LinearCoupling", "MultivariateNormal"]


def __dir__() -> list[str]:
    return __all__
