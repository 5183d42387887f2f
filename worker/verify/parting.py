"""At which token two answers part, and how sure plain decoding was of its own there. Pure."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

Choice = Mapping[str, Any]
#: Token ids to text.
Decode = Callable[[Sequence[int]], str]

#: What vLLM calls a token where it is asked for ids in place of texts.
_ID = "token_id:"
#: What a decoder gives for a character whose bytes are not all there.
_INCOMPLETE = "\ufffd"


@dataclass(frozen=True, slots=True)
class Parting:
    """Where an answer leaves plain decoding's.

    Attributes:
        token: the place in plain decoding's answer, from 0.
        gap: plain decoding's logit of its own token less that of the job's (logits as they are when the token is
            chosen: penalties, biases and masks are in them).
        at_least: the job's token is not among the candidates: the gap is larger than this.
        size: the larger of both logits, without its sign: what is rounded.
    """

    token: int
    gap: float
    at_least: bool
    size: float


@dataclass(frozen=True, slots=True)
class _Step:
    """A token of plain decoding, and the likeliest ones at its place with their logits, itself among them."""

    token: int
    candidates: Mapping[int, float]


def part(plain: Choice, job: Choice, decode: Decode) -> Parting | None:
    """Find the first token that is not the same.

    Where the job's answer has token ids, they are compared; else its text is followed along plain decoding's tokens,
    and its own next token is taken to be the likeliest one that its text goes on with.

    Args:
        plain: a choice of plain decoding, with `logprobs` whose tokens are ids.
        job: the choice of the same index in the job's answer.
        decode: the model's tokenizer, with the row's own wish as to special tokens.

    Returns:
        None where no token can be named: nothing but the end differs, or a parser has taken the text apart.
    """
    steps = _steps(plain)
    ours, theirs = job.get("token_ids"), plain.get("token_ids")
    if ours and theirs and len(theirs) == len(steps):  # with `echo` the prompt's are there, too
        pairs = enumerate(zip_longest(ours, theirs))
        at = next((place for place, (one, other) in pairs if one != other), None)
        if at is None or at >= min(len(ours), len(theirs)):
            return None
        return _parting(steps, at, [ours[at]])
    text, own = _text(job), _text(plain)
    if not steps or text is None or own is None or text == own:
        return None
    return _by_text(steps, job, text, decode)


def closest(plain: Choice) -> Parting | None:
    """The place where plain decoding was least sure: where nobody knows the token, the parting is no closer."""
    places = range(len(steps := _steps(plain)))
    rivals = [(at, sorted(steps[at].candidates, key=steps[at].candidates.__getitem__)[-2:]) for at in places]
    partings = [_parting(steps, at, [token for token in two if token != steps[at].token]) for at, two in rivals]
    return min((found for found in partings if found), key=lambda found: found.gap, default=None)


def _by_text(steps: Sequence[_Step], job: Choice, text: str, decode: Decode) -> Parting | None:
    ids = [step.token for step in steps]

    def leaves(count: int) -> bool:
        return not text.startswith(decode(ids[:count]).rstrip(_INCOMPLETE))

    at = bisect_right(range(len(ids) + 1), 0, key=leaves) - 1  # so many tokens are the job's, too
    if at == len(ids):  # it goes on where plain decoding ended: with a token that has no text, or it was its length
        at -= 1
        if decode(ids[:at]) != decode(ids):
            return None
    before = decode(ids[:at]).rstrip(_INCOMPLETE)
    rest = text[len(before) :]
    if not rest and (job.get("finish_reason") != "stop" or isinstance(job.get("stop_reason"), str)):
        return None  # it ended there by its length, or by a stop string, which is not in its text
    others = [token for token in steps[at].candidates if token != ids[at]]
    return _parting(steps, at, [token for token in others if _begins(decode([*ids[:at], token])[len(before) :], rest)])


def _begins(token: str, rest: str) -> bool:
    """Whether a text can go on with a token's."""
    whole = token.rstrip(_INCOMPLETE)
    if not rest:
        return not token  # a special one, which ends it
    # A stop string may have cut the text inside its last token.
    return bool(token) and (rest.startswith(whole) or whole.startswith(rest))


def _parting(steps: Sequence[_Step], at: int, tokens: Sequence[int]) -> Parting | None:
    """The parting at a place, the job having gone on with one of `tokens`."""
    candidates = steps[at].candidates
    if len(candidates) < 2:
        return None
    own = candidates[steps[at].token]
    known = [candidates[token] for token in tokens if token in candidates]
    other = max(known) if known else min(candidates.values())
    return Parting(at, abs(own - other), not known, max(abs(own), abs(other)))


def _steps(choice: Choice) -> list[_Step]:
    """Of a completion or a chat."""
    told = choice.get("logprobs") or {}
    if "content" in told:
        entries = [
            (entry["token"], entry.get("logprob"), {one["token"]: one["logprob"] for one in entry["top_logprobs"]})
            for entry in told["content"] or ()
        ]
    else:
        entries = [
            (token, logit, candidates or {})
            for token, logit, candidates in zip(
                told.get("tokens") or (), told.get("token_logprobs") or (), told.get("top_logprobs") or (), strict=False
            )
        ]
    return [
        _Step(
            _id(token), {_id(name): logit for name, logit in ({token: own} | candidates).items() if logit is not None}
        )
        for token, own, candidates in entries
    ]


def _id(name: str) -> int:
    return int(name.removeprefix(_ID))


def _text(choice: Choice) -> str | None:
    """What was generated, word for word; None where a parser has taken it apart."""
    message = choice.get("message")
    if message is None:
        return str(choice["text"])
    if any(message.get(name) for name in ("tool_calls", "function_call", "reasoning", "reasoning_content")):
        return None
    return str(message.get("content") or "")
