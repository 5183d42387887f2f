"""KV memory under two batches, in vLLM's own scheduler and without models: who gets blocks when; all come back.

Nothing here depends on which batch a request is in.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from integration.worker.minedraft.imagined_engine import BLOCK, ImaginedEngine, config_of

from worker.engine import platform
from worker.minedraft.scheduler import TwoBatchScheduler

#: Few for eight requests, of which one alone may need nine.
BLOCKS = 24
#: Two blocks that requests may begin with.
PREFIX = list(range(2 * BLOCK))


@dataclass(frozen=True)
class Come:
    """A request comes.

    Attributes:
        shares: whether its prompt begins with `PREFIX`.
        more: tokens of its prompt beyond that.
        tokens: tokens of its answer.
    """

    shares: bool
    more: int
    tokens: int


@dataclass(frozen=True)
class Go:
    """A request, by number, is given up, if it still runs or waits."""

    number: int


#: What happens before each call.
Life = list[list[Come | Go]]

comes = st.builds(Come, st.booleans(), st.integers(1, 200), st.integers(1, 80))
lives = st.lists(st.lists(st.one_of(comes, st.builds(Go, st.integers(0, 30))), max_size=3), max_size=25)
#: Chunks, preemptions, hits, and one that is given up while it decodes and one while it reads.
FULL_LIFE: Life = [
    [Come(True, 1, 80)],
    [],
    [Come(True, 90, 80)] * 7,
    *([[]] * 10),
    [Go(2)],
    [Come(False, 200, 40)],
    [Go(8)],
]


class Books:
    """Follows whose blocks are whose, from one call to the next."""

    def __init__(self, engine: ImaginedEngine) -> None:
        self.engine = engine
        self._pool = engine.scheduler.kv_cache_manager.block_pool
        self.shared = 0  # most blocks that were counted once for several requests

    def held(self) -> dict[str, set[int]]:
        """The blocks of each request."""
        (manager,) = self.engine.scheduler.kv_cache_manager.coordinator.single_type_managers
        return {name: {block.block_id for block in blocks} for name, blocks in manager.req_to_blocks.items()}

    def free(self) -> int:
        return int(self._pool.get_num_free_blocks())

    def step(self) -> None:
        """Make a call: only who takes part in it gets blocks, and each block counts once."""
        before = self.held()
        scheduled = set(self.engine.step().num_scheduled_tokens)
        after = self.held()
        got = {name for name, blocks in after.items() if blocks - before.get(name, set())}
        assert got <= scheduled
        self.check()

    def check(self) -> None:
        """What is not free is in somebody's hands, and the other way round."""
        held = self.held()
        used = set[int]().union(*held.values())
        assert self.free() + len(used) == BLOCKS - 1  # vLLM keeps one that stands for none
        self.shared = max(self.shared, sum(map(len, held.values())) - len(used))


@pytest.fixture(scope="module")
def live(tiny_pair: tuple[Path, Path]) -> Callable[[Life], Books]:
    """Lives through a life to the end, in an engine that is short of blocks and reads prompts in chunks."""
    config = config_of(tiny_pair, blocks=BLOCKS, engine_args="--max-num-batched-tokens 96 --enable-prefix-caching")
    return lambda life: lived(config, life)


def lived(config: Any, life: Life) -> Books:
    """All calls of a life, with the answers as long as they should be."""
    engine = ImaginedEngine(TwoBatchScheduler, config)
    books, wanted, come = Books(engine), dict[str, int](), 0
    for events in life:
        for event in events:
            match event:
                case Come(shares, more, tokens):
                    own = [100 + (7 * come + place) % 400 for place in range(more)]
                    engine.add(f"r{come}", PREFIX * shares + own, tokens=tokens)
                    wanted[f"r{come}"], come = tokens, come + 1
                case Go(number) if f"r{number}" in engine.scheduler.requests:
                    engine.abort(f"r{number}")
                    del wanted[f"r{number}"]
        books.step()
    while engine.scheduler.has_requests():
        books.step()
        assert len(engine.calls) < 5_000, "no end in sight"
    engine.run()
    assert {name: engine.generated[name] for name in wanted} == wanted
    return books


@settings(max_examples=40, deadline=None)
@given(life=lives)
@example(life=FULL_LIFE)
def test_only_who_is_scheduled_gets_blocks_and_all_come_back(live: Callable[[Life], Books], life: Life) -> None:
    """Nothing is allocated for a batch that is being drafted for."""
    books = live(life)
    assert books.held() == {}
    assert books.free() == BLOCKS - 1


def test_a_prefix_is_in_memory_once_and_the_scarce_engine_is_scarce(live: Callable[[Life], Books]) -> None:
    """Without this, the test above could stop meaning anything."""
    books = live(FULL_LIFE)
    assert books.shared >= len(PREFIX) // BLOCK
    assert any(call.preempted_req_ids for call in books.engine.calls)
    assert any(new.num_computed_tokens for call in books.engine.calls for new in call.scheduled_new_reqs)


def test_512_requests_at_once_are_halved_and_all_end(tiny_pair: tuple[Path, Path]) -> None:
    most, tokens = 512, 120
    engine = ImaginedEngine(TwoBatchScheduler, config_of(tiny_pair, max_num_seqs=most, blocks=4000))
    for number in range(most + 20):
        engine.add(f"r{number}", tokens=tokens)
    while len(set[str]().union(*engine.sampling)) < most:
        engine.step()
    assert len(engine.scheduler.running) == most
    begin = len(engine.calls)
    while len(engine.scheduler.running) == most and len(engine.scheduler.waiting) == 20:
        engine.step()
    sizes = [len(names) for names in engine.sampling[begin + 2 : -1]]
    assert len(sizes) > 20
    assert all(abs(one - other) <= 1 for one, other in pairwise(sizes))
    assert all(one + other == most for one, other in pairwise(sizes))
    engine.run()
    assert set(engine.generated.values()) == {tokens}


def test_nobody_stalls_while_a_prompt_that_fills_the_context_is_read(tiny_pair: tuple[Path, Path]) -> None:
    config = config_of(tiny_pair, engine_args="--max-num-batched-tokens 256")
    limit, answer = config.model_config.max_model_len, 5
    engine = ImaginedEngine(TwoBatchScheduler, config)
    others = {f"r{number}" for number in range(6)}
    for name in others:
        engine.add(name, tokens=200)
    for _ in range(6):
        engine.step()
    begin = len(engine.calls)
    engine.add("long", limit - answer, tokens=answer)
    while "long" not in engine.sampling[-1]:
        engine.step()
    reading = engine.sampling[begin:]
    assert len(reading) > limit / 256
    for one, other in pairwise(reading):
        assert one | other >= others
    assert all("long" in call.num_scheduled_tokens for call in engine.calls[begin + 1 :]), "it is read in every call"
    engine.run()
    assert engine.generated["long"] == answer
    assert {engine.generated[name] for name in others} == {200}


@pytest.mark.parametrize(
    ("variable", "flag", "memory"),
    [(None, "--kv-cache-memory-bytes 96M", 96 * 1024**2), ("3", "", 3 * 1024**3), (None, "", None)],
)
def test_the_verifiers_memory_is_what_the_user_says(
    variable: str | None,
    flag: str,
    memory: int | None,
    tiny_pair: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The drafter's is a setting of its own: `--drafter-kv-cache-gib`."""
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    if variable is not None:
        monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", variable)
    sets: dict[str, str] = dict(os.environ)
    platform.set_environment(sets, [], cpu=True)  # as every engine does at start
    for name, value in sets.items():
        monkeypatch.setenv(name, value)
    given_to_vllm = config_of(tiny_pair, engine_args=flag).cache_config.kv_cache_memory_bytes
    assert given_to_vllm == memory if memory else given_to_vllm in {gib * 1024**3 for gib in range(1, 5)}
