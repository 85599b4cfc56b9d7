"""Takes nothing; gives models with discrete latent sites, and each with these summed out by hand.

The summed model draws the same continuous sites, and is what NUTS runs on.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.nn import logsumexp
from numpyro import handlers
from numpyro.contrib.control_flow import scan

from benchmarks.numpyro_examples.entry import Data, Example


def counts_of_fish(camper: jax.Array, y: jax.Array | None = None):
    """Zero-inflated Poisson regression."""
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    idle = numpyro.sample("idle", dist.Beta(1.0, 1.0))
    with numpyro.plate("group", len(camper)):
        numpyro.sample("y", dist.ZeroInflatedPoisson(idle, jnp.exp(a + b * camper)), obs=y)


def counts_of_fish_data() -> Data:
    rng = np.random.default_rng(40)
    camper = rng.binomial(1, 0.5, 120).astype(float)
    y = rng.poisson(np.exp(0.3 + 0.9 * camper)) * rng.binomial(1, 0.6, 120)
    return (camper,), {"y": y}


def mixture_parts():
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.full(2, 2.0)))
    low = numpyro.sample("low", dist.Normal(-1.0, 2.0))
    gap = numpyro.sample("gap", dist.HalfNormal(3.0))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    return weights, jnp.stack([low, low + gap]), scale


def mixture(y: jax.Array):
    """A mixture of two normals with one scale, each point's part a discrete site."""
    weights, locs, scale = mixture_parts()
    with numpyro.plate("point", len(y)):
        part = numpyro.sample("part", dist.Categorical(weights), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(locs[part], scale), obs=y)


def mixture_summed(y: jax.Array):
    """The same, by NumPyro's mixture distribution."""
    weights, locs, scale = mixture_parts()
    parts = dist.Normal(locs, scale)
    with numpyro.plate("point", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), parts), obs=y)


def mixture_data() -> Data:
    rng = np.random.default_rng(41)
    return (np.concatenate([rng.normal(-1.0, 0.8, 25), rng.normal(2.5, 0.8, 35)]),), {}


def toy(y: jax.Array):
    """Three discrete sites of which one decides the next, and a mean for each end of the chain."""
    keep = numpyro.sample("keep", dist.Beta(4.0, 2.0))
    locs = numpyro.sample("locs", dist.Normal(jnp.array([-2.0, 2.0]), 1.0).to_event(1))
    with numpyro.plate("point", len(y)):
        how = {"enumerate": "parallel"}
        first = numpyro.sample("first", dist.Bernoulli(0.3), infer=how)
        second = numpyro.sample(
            "second", dist.Bernoulli(jnp.where(first == 1, keep, 1 - keep)), infer=how
        )
        third = numpyro.sample(
            "third", dist.Bernoulli(jnp.where(second == 1, keep, 1 - keep)), infer=how
        )
        numpyro.sample("y", dist.Normal(locs[third], 1.0), obs=y)


def toy_summed(y: jax.Array):
    """The same, with the chain multiplied out."""
    keep = numpyro.sample("keep", dist.Beta(4.0, 2.0))
    locs = numpyro.sample("locs", dist.Normal(jnp.array([-2.0, 2.0]), 1.0).to_event(1))
    step = jnp.array([[keep, 1 - keep], [1 - keep, keep]])
    last = jnp.array([0.7, 0.3]) @ step @ step
    law = dist.MixtureSameFamily(dist.Categorical(last), dist.Normal(locs, 1.0))
    with numpyro.plate("point", len(y)):
        numpyro.sample("y", law, obs=y)


def toy_data() -> Data:
    rng = np.random.default_rng(42)
    return (np.where(rng.uniform(size=50) < 0.4, 1.8, -1.7) + rng.normal(size=50),), {}


def annotators(answers: jax.Array):
    """Five people put forty items into three classes: each has a table of confusions."""
    people, classes = answers.shape[1], 3
    share, confused = annotator_parts(people, classes)
    with numpyro.plate("item", len(answers), dim=-2):
        true = numpyro.sample("true", dist.Categorical(share), infer={"enumerate": "parallel"})
        with numpyro.plate("person", people, dim=-1):
            chances = confused[jnp.arange(people), true]
            numpyro.sample("answer", dist.Categorical(chances), obs=answers)


def annotator_parts(people: int, classes: int):
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(classes)))
    prior = jnp.ones((classes, classes)) + 4.0 * jnp.eye(classes)
    with numpyro.plate("people", people, dim=-2), numpyro.plate("classes", classes, dim=-1):
        confused = numpyro.sample("confused", dist.Dirichlet(prior))
    return share, confused


def annotators_summed(answers: jax.Array):
    """The same, with items' classes summed out."""
    people = answers.shape[1]
    share, confused = annotator_parts(people, 3)
    each = jnp.log(confused)[jnp.arange(people), :, answers]  # items, people, classes
    numpyro.factor("answer", logsumexp(jnp.log(share) + each.sum(1), axis=-1).sum())


def annotators_data() -> Data:
    rng = np.random.default_rng(43)
    true = rng.choice(3, 40, p=[0.5, 0.3, 0.2])
    said = rng.uniform(size=(40, 5)) < np.array([0.9, 0.8, 0.75, 0.6, 0.85])
    return (np.where(said, true[:, None], rng.integers(0, 3, (40, 5))),), {}


def captures(seen: jax.Array, first: jax.Array):
    """Capture and recapture (Cormack, Jolly and Seber): an animal lives on, and may be met."""
    survival = numpyro.sample("survival", dist.Uniform(0.0, 1.0))
    meeting = numpyro.sample("meeting", dist.Uniform(0.0, 1.0))
    animals, times = seen.shape

    def body(alive, at):
        t, met = at
        with numpyro.plate("animal", animals), handlers.mask(mask=first < t):
            chance = jnp.where(first < t, alive * survival, 1.0)
            alive = numpyro.sample("alive", dist.Bernoulli(chance), infer={"enumerate": "parallel"})
            numpyro.sample("met", dist.Bernoulli(alive * meeting), obs=met)
        return jnp.where(first < t, alive, 1), None

    scan(body, jnp.ones(animals, int), (jnp.arange(1, times), seen.T[1:]))


def captures_summed(seen: jax.Array, first: jax.Array):
    """The same, with lives summed out from the last occasion to the first."""
    survival = numpyro.sample("survival", dist.Uniform(0.0, 1.0))
    meeting = numpyro.sample("meeting", dist.Uniform(0.0, 1.0))
    later = jnp.ones((2, len(seen)))  # chances of what was met later: of the dead, of the living
    for t in range(seen.shape[1] - 1, 0, -1):
        dead = jnp.where(seen[:, t] == 1, 0.0, 1.0) * later[0]
        living = jnp.where(seen[:, t] == 1, meeting, 1 - meeting) * later[1]
        new = jnp.stack([dead, survival * living + (1 - survival) * dead])
        later = jnp.where(first < t, new, later)
    numpyro.factor("met", jnp.log(later[1]).sum())


def captures_data() -> Data:
    rng = np.random.default_rng(44)
    first = rng.integers(0, 5, 50)
    seen = np.zeros((50, 7), int)
    for i, t in enumerate(first):
        seen[i, t] = 1
        lives = np.cumprod(rng.uniform(size=7 - t - 1) < 0.8)
        seen[i, t + 1 :] = lives * (rng.uniform(size=7 - t - 1) < 0.6)
    return (seen, first), {}


def hmm_parts(states: int):
    with numpyro.plate("states", states):
        step = numpyro.sample("step", dist.Dirichlet(1.0 + 4.0 * jnp.eye(states)))
        locs = numpyro.sample("locs", dist.Normal(jnp.linspace(-2.0, 2.0, states), 0.7))
    return step, locs, numpyro.sample("noise", dist.HalfNormal(1.0))


def hmm(y: jax.Array):
    """A hidden Markov chain of three states, drawn state by state in a scan."""
    step, locs, noise = hmm_parts(3)

    def body(last, at):
        state = numpyro.sample(
            "state", dist.Categorical(step[last]), infer={"enumerate": "parallel"}
        )
        numpyro.sample("y", dist.Normal(locs[state], noise), obs=at)
        return state, None

    scan(body, 0, y)


def hmm_summed(y: jax.Array):
    """The same chain, its states summed out going forward, in a scan of one's own."""
    step, locs, noise = hmm_parts(3)
    log_step = jnp.log(step)
    each = dist.Normal(locs, noise).log_prob(y[:, None])

    def forward(log_p, at):
        return logsumexp(log_p[:, None] + log_step, axis=0) + at, None

    log_p, _ = jax.lax.scan(forward, log_step[0] + each[0], each[1:])
    numpyro.factor("y", logsumexp(log_p))


def hmm_data() -> Data:
    rng = np.random.default_rng(45)
    state, y = 0, []
    for _ in range(80):
        state = state if rng.uniform() < 0.8 else rng.integers(3)
        y.append([-2.0, 0.2, 2.2][state] + 0.5 * rng.normal())
    return (np.array(y),), {}


def topics(words: jax.Array, size: int):
    """Latent Dirichlet allocation, small: topics of words, counted in documents, summed out."""
    shares = jnp.array([1.0, 0.6])
    with numpyro.plate("document", len(words)):
        share = numpyro.sample("share", dist.Dirichlet(shares))
    topic = numpyro.sample("topic", dist.Dirichlet(topic_priors(size)).to_event(1))
    counts = share @ topic
    with numpyro.plate("text", len(words)):
        numpyro.sample("words", dist.Multinomial(words.sum(-1), probs=counts), obs=words)


def topics_drawn(document: jax.Array, word: jax.Array, documents: int, size: int):
    """Latent Dirichlet allocation with a discrete topic for each word."""
    with numpyro.plate("document", documents):
        share = numpyro.sample("share", dist.Dirichlet(jnp.array([1.0, 0.6])))
    topic = numpyro.sample("topic", dist.Dirichlet(topic_priors(size)).to_event(1))
    with numpyro.plate("place", len(word)):
        of = numpyro.sample(
            "of", dist.Categorical(share[document]), infer={"enumerate": "parallel"}
        )
        numpyro.sample("word", dist.Categorical(topic[of]), obs=word)


def topics_drawn_summed(document: jax.Array, word: jax.Array, documents: int, size: int):
    """The same, with words' topics summed out."""
    with numpyro.plate("document", documents):
        share = numpyro.sample("share", dist.Dirichlet(jnp.array([1.0, 0.6])))
    topic = numpyro.sample("topic", dist.Dirichlet(topic_priors(size)).to_event(1))
    with numpyro.plate("place", len(word)):
        numpyro.sample("word", dist.Categorical((share @ topic)[document]), obs=word)


def topic_priors(size: int) -> jax.Array:
    """The first topic is told from the second by the words that it begins with."""
    lean = jnp.linspace(2.0, 0.5, size)
    return jnp.stack([lean, lean[::-1]])


def texts() -> np.ndarray:
    rng = np.random.default_rng(46)
    topic = np.array([[0.35, 0.3, 0.2, 0.1, 0.03, 0.02], [0.02, 0.03, 0.1, 0.2, 0.3, 0.35]])
    return np.array([rng.multinomial(20, p @ topic) for p in rng.dirichlet([1.0, 0.6], 10)])


def topics_data() -> Data:
    return (texts(), 6), {}


def topics_drawn_data() -> Data:
    counts = texts()
    document, word = np.nonzero(counts)
    each = counts[document, word]
    return (np.repeat(document, each), np.repeat(word, each), 10, 6), {}


def gaps(pulled: jax.Array, healed: jax.Array, known: jax.Array):
    """A yes or no that was not written down for some: it is a discrete latent site there."""
    share = numpyro.sample("share", dist.Beta(2.0, 2.0))
    chance = numpyro.sample("chance", dist.Beta(1.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("pulled", dist.Bernoulli(share).mask(known), obs=pulled)
    with numpyro.plate("patient", len(pulled)):
        guess = numpyro.sample(
            "guess", dist.Bernoulli(share).mask(~known), infer={"enumerate": "parallel"}
        )
        whole = jnp.where(known, pulled, guess)
        numpyro.sample("healed", dist.Bernoulli(chance[whole]), obs=healed)


def gaps_summed(pulled: jax.Array, healed: jax.Array, known: jax.Array):
    """The same, with what was not written down summed out."""
    share = numpyro.sample("share", dist.Beta(2.0, 2.0))
    chance = numpyro.sample("chance", dist.Beta(1.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("pulled", dist.Bernoulli(share).mask(known), obs=pulled)
    either = share * chance[1] + (1 - share) * chance[0]
    with numpyro.plate("patient", len(pulled)):
        law = dist.Bernoulli(jnp.where(known, chance[pulled], either))
        numpyro.sample("healed", law, obs=healed)


def gaps_data() -> Data:
    rng = np.random.default_rng(47)
    pulled, known = rng.binomial(1, 0.4, 80), rng.uniform(size=80) < 0.7
    healed = rng.binomial(1, np.where(pulled == 1, 0.8, 0.3))
    return (np.where(known, pulled, 0), healed, known), {}


ENTRIES = [
    Example("zero-inflated-poisson", counts_of_fish, counts_of_fish_data),
    Example("gaussian-mixture", mixture, mixture_data, truth_model=mixture_summed),
    Example("gaussian-mixture-summed", mixture_summed, mixture_data),
    Example("toy-mixture", toy, toy_data, truth_model=toy_summed),
    Example("annotators", annotators, annotators_data, truth_model=annotators_summed),
    Example("capture-recapture", captures, captures_data, truth_model=captures_summed),
    Example("hmm-enumerated", hmm, hmm_data, truth_model=hmm_summed),
    Example("hmm-forward", hmm_summed, hmm_data),
    Example("topics", topics, topics_data),
    Example("topics-enumerated", topics_drawn, topics_drawn_data, truth_model=topics_drawn_summed),
    Example("discrete-imputation", gaps, gaps_data, truth_model=gaps_summed),
]
