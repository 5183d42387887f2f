"""Rows with drafts get what plain decoding gives, whatever the drafts and the parameters: vLLM's sampler, no engine."""

import random
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from statistics_of_rows import fit
from torch import Tensor
from vllm.sampling_params import SamplingParams
from vllm.v1.outputs import SamplerOutput
from vllm.v1.sample.logits_processor import LogitsProcessors
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.rejection_sampler import RejectionSampler
from vllm.v1.sample.sampler import Sampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata
from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch

from worker.minedraft.link import REJECTED
from worker.minedraft.sampling import DraftSampler, has_proposals, logits_processors

VOCABULARY, LENGTH, ROWS = 24, 10, 5
CPU = torch.device("cpu")
PROMPT = [1, 2, 3, 2]
#: As OpenAI's front end would make them.
STOP = 7


@pytest.fixture(scope="module", autouse=True)
def _uncompiled() -> Iterator[None]:
    """vLLM compiles how it ranks logprobs, for each number of rows anew."""
    with torch._dynamo.config.patch(disable=True):
        yield


def processors() -> LogitsProcessors:
    return logits_processors(SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=ROWS)), CPU)


def logits_after(row: int, ids: list[int]) -> Tensor:
    """[vocabulary] what the target model says after a row's prompt and output."""
    seed = hash((row, *ids)) % 2**31
    return 2 * torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed))


class Decoding:
    """Rows in one of vLLM's persistent batches, through their first tokens.

    Args:
        params: of each row.
        numbers: of the rows, for `logits_after`.
    """

    def __init__(self, params: list[SamplingParams], numbers: list[int]) -> None:
        self.numbers = numbers
        self.requests = [self._request(asked, number) for asked, number in zip(params, numbers, strict=True)]
        self.batch = InputBatch(
            max_num_reqs=ROWS,
            max_model_len=64,
            max_num_batched_tokens=64,
            device=CPU,
            vocab_size=VOCABULARY,
            block_sizes=[16],
            max_num_blocks_per_req=[4],
            logitsprocs=processors(),
        )
        for request in self.requests:
            self.batch.add_request(request)
        self.logprobs: list[list[float]] = [[] for _ in params]
        """Of the sampled tokens, where asked for."""

    @property
    def outputs(self) -> list[list[int]]:
        return [request.output_token_ids for request in self.requests]

    def plainly(self, sampler: Sampler) -> None:
        """A token each."""
        logits = torch.stack([logits_after(row, ids) for row, ids in zip(self.numbers, self.outputs, strict=True)])
        self._take(sampler(logits, self._metadata()), RejectionSampler.parse_output)

    def drafted(self, sampler: DraftSampler, drafts: list[list[int]]) -> int:
        """The accepted drafts and a token each; how many were accepted."""
        said = list(zip(self.numbers, self.outputs, drafts, strict=True))
        logits = [logits_after(row, [*ids, *some[:place]]) for row, ids, some in said for place in range(len(some) + 1)]
        before = sum(map(len, self.outputs))
        metadata = SpecDecodeMetadata.make_dummy(drafts, CPU)
        self._take(sampler(metadata, None, torch.stack(logits), self._metadata()), RejectionSampler.parse_output)
        return sum(map(len, self.outputs)) - before - len(drafts)

    def _metadata(self) -> Any:
        self.batch.refresh_metadata()
        return self.batch.sampling_metadata

    def _take(self, output: SamplerOutput, parse: Any) -> None:
        ids, logprobs = parse(output.sampled_token_ids, VOCABULARY, (), output.logprobs_tensors)
        for row, (own, some) in enumerate(zip(self.outputs, ids, strict=True)):
            own.extend(some)
            if logprobs is not None:
                begin = logprobs.cu_num_generated_tokens[row]
                self.logprobs[row] += logprobs.logprobs[begin : begin + len(some), 0].tolist()

    @staticmethod
    def _request(params: SamplingParams, number: int) -> CachedRequestState:
        seed = params.seed
        return CachedRequestState(
            req_id=f"r{number}",
            prompt_token_ids=PROMPT,
            mm_features=[],
            sampling_params=params,
            generator=None if seed is None else torch.Generator().manual_seed(seed),
            block_ids=([0],),
            num_computed_tokens=0,
            output_token_ids=[],
        )


def alone(params: SamplingParams, number: int) -> Decoding:
    """A row by itself, without drafts."""
    decoding = Decoding([params], [number])
    sampler = Sampler()
    for _ in range(LENGTH):
        decoding.plainly(sampler)
    return decoding


def guess(chance: random.Random, row: int, ids: list[int], most: int) -> list[int]:
    """Some drafts: the likeliest token, or any."""
    drafts: list[int] = []
    for _ in range(chance.randint(0, most)):
        likeliest = int(logits_after(row, [*ids, *drafts]).argmax())
        drafts.append(likeliest if chance.random() < 0.7 else chance.randrange(VOCABULARY))
    return drafts


@st.composite
def row_params(draw: st.DrawFn, *, sampled: bool | None = None) -> SamplingParams:
    """What a row may ask for; with a seed, where it is sampled."""
    sampled = draw(st.booleans()) if sampled is None else sampled
    params = SamplingParams(
        temperature=draw(st.sampled_from([0.3, 1.0, 1.7])) if sampled else 0.0,
        seed=draw(st.integers(0, 2**31)) if sampled else None,
        top_p=draw(st.sampled_from([1.0, 0.8])) if sampled else 1.0,
        top_k=draw(st.sampled_from([0, 5])) if sampled else 0,
        min_p=draw(st.sampled_from([0.0, 0.1])) if sampled else 0.0,
        repetition_penalty=draw(st.sampled_from([1.0, 1.0, 1.4])),
        presence_penalty=draw(st.sampled_from([0.0, 0.0, 1.0])),
        frequency_penalty=draw(st.sampled_from([0.0, 0.0, 0.7])),
        logit_bias=draw(st.sampled_from([None, None, {4: 3.0, 5: -100.0}])),
        allowed_token_ids=draw(st.sampled_from([None, None, None, [3, 4, 5, 6, 7, 8]])),
        min_tokens=draw(st.sampled_from([0, 0, 4])),
        stop_token_ids=[STOP],
        logprobs=draw(st.sampled_from([None, None, 2])),
    )
    params._all_stop_token_ids = {STOP}
    params._bad_words_token_ids = draw(st.sampled_from([None, None, [[4], [6, 8]]]))
    return params


@settings(deadline=None, max_examples=30)
@given(params=st.lists(row_params(), min_size=1, max_size=ROWS), seed=st.integers(0, 2**32))
def test_a_batch_with_drafts_says_what_each_row_says_alone(params: list[SamplingParams], seed: int) -> None:
    chance = random.Random(seed)
    ours = Decoding(params, list(range(len(params))))
    sampler = DraftSampler(Sampler(), lambda: ours.outputs)
    while min(map(len, ours.outputs)) < LENGTH:
        drafts = [guess(chance, row, ids, 3) for row, ids in zip(ours.numbers, ours.outputs, strict=True)]
        drafts[0] = drafts[0] or [0]  # a call without any is a call of vLLM's plain sampler
        ours.drafted(sampler, drafts)
    for row, asked in enumerate(params):
        plain = alone(asked, row)
        assert ours.outputs[row][:LENGTH] == plain.outputs[0]
        if asked.logprobs is not None:
            assert ours.logprobs[row][:LENGTH] == pytest.approx(plain.logprobs[0], abs=1e-5)


@settings(deadline=None, max_examples=10)
@given(params=st.lists(row_params(sampled=True), min_size=1, max_size=ROWS), seed=st.integers(0, 2**32))
def test_drafts_that_are_right_are_accepted(params: list[SamplingParams], seed: int) -> None:
    """All of them: otherwise the first test would hold for a sampler that accepts none."""
    texts = [alone(asked, row).outputs[0] for row, asked in enumerate(params)]
    ours = Decoding(params, list(range(len(params))))
    sampler = DraftSampler(Sampler(), lambda: ours.outputs)
    counts = [random.Random(seed + row).randint(1, LENGTH - 1) for row in range(len(params))]
    accepted = ours.drafted(sampler, [text[:count] for text, count in zip(texts, counts, strict=True)])
    assert accepted == sum(counts)


def test_outputs_are_as_they_were_when_sampling_fails() -> None:
    """They are the request's own lists."""

    class Failing(Sampler):  # type: ignore[misc]
        calls = 0

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls == 2:
                raise ValueError("no")
            return super().forward(*args, **kwargs)

    params = SamplingParams(temperature=1.0, seed=3)
    ours = Decoding([params], [0])
    text = alone(params, 0).outputs[0]
    with pytest.raises(ValueError, match="no"):
        ours.drafted(DraftSampler(Failing(), lambda: ours.outputs), [text[:3]])
    assert ours.outputs == [[]]


def test_whose_drafts_are_drawn() -> None:
    assert has_proposals(SamplingParams(temperature=0.5))
    assert not has_proposals(SamplingParams(temperature=0.5, seed=0))
    assert not has_proposals(SamplingParams(temperature=0))


def many(rows: int, **more: Any) -> SamplingMetadata:
    """Of rows that are sampled as the target says."""
    none = torch.empty(0)
    return SamplingMetadata(
        temperature=torch.ones(rows),
        all_greedy=False,
        all_random=True,
        top_p=None,
        top_k=None,
        generators={},
        max_num_logprobs=more.pop("max_num_logprobs", None),
        no_penalties=True,
        prompt_token_ids=None,
        frequency_penalties=none,
        presence_penalties=none,
        repetition_penalties=none,
        output_token_ids=[],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=LogitsProcessors(),
        **more,
    )


@pytest.mark.parametrize("top_k", [None, 5])
def test_rows_whose_drafts_were_drawn_keep_the_targets_distribution(top_k: int | None) -> None:
    """Every other row has a draft with its proposal, the rest one that nobody has drawn, in one batch."""
    rows = 20_000
    torch.manual_seed(1)
    target, after, proposal = (torch.randn(VOCABULARY) for _ in range(3))
    draft_from = proposal.softmax(0)
    drafts = torch.multinomial(draft_from, rows, replacement=True)
    drafts[1::2] = int(target.argmax())
    sampler = DraftSampler(Sampler(), lambda: [[] for _ in range(rows)])
    sampler.proposals = {row: draft_from.unsqueeze(0) for row in range(0, rows, 2)}
    metadata = SpecDecodeMetadata.make_dummy([[int(draft)] for draft in drafts], CPU)
    metadata.draft_token_ids.copy_(drafts)
    sampling = many(rows)
    if top_k is not None:
        sampling.top_k = torch.full((rows,), top_k, dtype=torch.int32)
    ids = sampler(metadata, None, torch.stack([target, after]).repeat(rows, 1), sampling).sampled_token_ids

    accepted = ids[:, 0] == drafts
    assert ((ids[:, 1] == REJECTED) == ~accepted).all()
    wanted, then = (_kept(logits, top_k).softmax(0) for logits in (target, after))
    for first, some in ((wanted, ids[::2, 0]), (wanted, ids[1::2, 0]), (then, ids[accepted, 1])):
        assert fit(Counter(some.tolist()), dict(enumerate(first.tolist())))
    shared = float(torch.minimum(wanted, draft_from).sum())
    assert accepted[::2].float().mean() == pytest.approx(shared, abs=0.03), "as often as can be (Leviathan et al.)"
    assert accepted[1::2].float().mean() == pytest.approx(float(wanted.max()), abs=0.03)


def test_what_follows_drawn_drafts_may_be_from_elsewhere() -> None:
    """As a zero that stands for a draft that is missing: nobody has drawn it."""
    rows = 20_000
    torch.manual_seed(1)
    target, after, last, proposal = (torch.randn(VOCABULARY) for _ in range(4))
    drafts = torch.zeros(rows, 2, dtype=torch.long)
    drafts[:, 0] = torch.multinomial(proposal.softmax(0), rows, replacement=True)
    sampler = DraftSampler(Sampler(), lambda: [[] for _ in range(rows)])
    sampler.proposals = dict.fromkeys(range(rows), proposal.softmax(0).unsqueeze(0))
    metadata = SpecDecodeMetadata.make_dummy(drafts.tolist(), CPU)
    metadata.draft_token_ids = drafts.flatten().to(torch.int32)
    ids = sampler(metadata, None, torch.stack([target, after, last]).repeat(rows, 1), many(rows)).sampled_token_ids
    accepted = ids[:, 0] == drafts[:, 0]
    assert fit(Counter(ids[accepted, 1].tolist()), dict(enumerate(after.softmax(0).tolist())))


def _kept(logits: Tensor, top_k: int | None) -> Tensor:
    if top_k is None:
        return logits
    return torch.where(logits >= logits.topk(top_k).values[-1], logits, -torch.inf)


@pytest.mark.parametrize("mode", ["processed_logits", "processed_logprobs"])
def test_shown_logprobs_are_the_targets_and_not_what_is_drawn_from(mode: Any) -> None:
    target, proposal = torch.randn(2, VOCABULARY)
    sampler = DraftSampler(Sampler(mode), lambda: [[]])
    sampler.proposals = {0: proposal.softmax(0).unsqueeze(0)}
    logits = torch.stack([target, target])
    said = sampler(SpecDecodeMetadata.make_dummy([[3]], CPU), None, logits, many(1, max_num_logprobs=0))
    wanted = target if mode == "processed_logits" else target.log_softmax(0)
    assert said.logprobs_tensors.logprobs[0, 0] == pytest.approx(float(wanted[said.sampled_token_ids[0, 0]]))
