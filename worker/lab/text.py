"""What imagined models say: functions of the prompt and the position alone, so every mode gives the same texts.

A part of each text may be a template, the same words in all rows, as the rows of a dataset job have it: stretches of it
take turns with text of the row's own. Whether a draft is right is such a function, too, and so is how likely that was,
which the drafter knows before it drafts: a draft model's confidence.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

#: Ids of the tiny vocabulary that say something: none ends a text, none is half a character.
FIRST_ID, LAST_ID = 258, 511

#: Tokens of template at a stretch.
STRETCH = 24
#: A template has so many different stretches, in turn: longer texts repeat them.
STRETCHES = 4
#: What the template is made from, in place of a prompt's seed (those are below 2^32).
_TEMPLATE = 1 << 40
#: How finely chances are told apart; a power of 2.
_CHANCES_BITS = 16

Numbers = NDArray[np.uint64]
Places = NDArray[np.int64]
Ids = NDArray[np.int64]
Chances = NDArray[np.float64]


def mixed(numbers: Numbers) -> Numbers:
    """Each number's own random one (the finalizer of SplitMix64, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        bits = numbers * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits ^= bits >> np.uint64(31)
    return bits


def target_ids(seeds: Numbers, positions: Places, template: float = 0.0) -> Ids:
    """What the target says.

    Args:
        seeds: [requests] one for each prompt.
        positions: [requests, n] places in the text, prompt included, from 0.
        template: the share of the text that is the template's, as nearly as whole stretches give it.

    Returns:
        [requests, n] ids.
    """
    random = _of(seeds, positions)
    if template:
        cycle = round(STRETCH / template)
        stretch, at = np.divmod(positions, cycle)
        shared = mixed(mixed((_TEMPLATE + stretch % STRETCHES).astype(np.uint64)) + at.astype(np.uint64))
        random = np.where(at < STRETCH, shared, random)
    ids: Ids = FIRST_ID + (random % np.uint64(LAST_ID - FIRST_ID + 1)).astype(np.int64)
    return ids


def chances(seeds: Numbers, positions: Places, acceptance: Chances, spread: float = 0.0) -> Chances:
    """How likely each draft is to be right.

    Args:
        seeds: [requests] one for each prompt.
        positions: [requests, drafts] places in the text, prompt included, from 0.
        acceptance: [drafts] the mean of each.
        spread: `Profile.spread`; the chances are Beta's.

    Returns:
        [requests, drafts]
    """
    if not spread:
        return np.broadcast_to(acceptance, positions.shape)
    at = (_of(seeds + np.uint64(2), positions) >> np.uint64(64 - _CHANCES_BITS)).astype(np.int64)
    columns = [_spread(mean, spread)[at[:, place]] for place, mean in enumerate(acceptance.tolist())]
    return np.stack(columns, axis=1) if columns else np.empty(positions.shape)


def draft_ids(seeds: Numbers, positions: Places, likely: Chances, template: float = 0.0) -> Ids:
    """What the draft model says: the target's id, or the one after it.

    A place is drafted again only after a draft before it was rejected or not verified, and then as before.

    Args:
        seeds: [requests] one for each prompt.
        positions: [requests, drafts] places in the text, prompt included, from 0.
        likely: [requests, drafts] how likely each is to be right (`chances`).
        template: as for `target_ids`.
    """
    right = target_ids(seeds, positions, template)
    wrong = _of(seeds + np.uint64(1), positions).astype(np.float64) / 2.0**64 >= likely
    ids: Ids = np.where(wrong, FIRST_ID + (right + 1 - FIRST_ID) % (LAST_ID - FIRST_ID + 1), right)
    return ids


def accepted(drafts: Ids, target: Ids, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """[requests] how many drafts, from the first on, are what the target says.

    Args:
        drafts: [requests, n] drafted ids, of which the first `counts` of each row are meant.
        target: [requests, n] the target's ids for the same places.
        counts: [requests]
    """
    same = (drafts == target) & (np.arange(drafts.shape[1]) < counts[:, None])
    result: NDArray[np.int64] = np.cumprod(same, axis=1).sum(axis=1)
    return result


def _of(seeds: Numbers, positions: Places) -> Numbers:
    """[requests, n] a random number for each place of each text."""
    return mixed(mixed(seeds)[:, None] + positions.astype(np.uint64))


@lru_cache
def _spread(mean: float, spread: float) -> Chances:
    """Chances around a mean, all equally likely: Beta(a n, (1 - a) n) has the variance a(1 - a) / (n + 1)."""
    size = 1 << _CHANCES_BITS
    count = 1 / spread - 1
    if not (count and 0 < mean < 1):  # known for certain, or nothing to know
        return (np.arange(size) < mean * size).astype(np.float64)
    return np.random.default_rng(0).beta(mean * count, (1 - mean) * count, size)
