"""Which GPU each rank of two batches computes on."""

from argparse import Namespace
from dataclasses import replace
from typing import Any

import pytest

from worker.engine.gpu_placement import NVML, Machine, Memory, chosen, place_engine, place_gpus, visible_gpus
from worker.engine.placement import Placement
from worker.engine.protocol import EngineStartError
from worker.minedraft import classes

ANY = Memory(fixed=False, share=2.0)
UUIDS = {"GPU-a": 4, "GPU-b": 6, "GPU-other": 9}
#: `CUDA_VISIBLE_DEVICES=4,5,6`.
THREE = Machine(visible=lambda: (4, 5, 6), number_of=UUIDS.__getitem__)


@pytest.mark.parametrize(
    ("gpus", "verifiers", "placement"),
    [
        ((0, 1), 1, Placement(((0,),), (1,))),
        ((0, 1, 2, 3, 4), 4, Placement(((0,), (1,), (2,), (3,)), (4,))),
        ((0, 1, 2, 3, 4), 2, Placement(((0,), (1,)), (2,))),
        ((7, 3, 5), 2, Placement(((7,), (3,)), (5,))),
    ],
)
@pytest.mark.parametrize("link", ["nccl", "host"])
def test_the_drafter_gets_the_one_after_the_verifiers(
    gpus: tuple[int, ...], verifiers: int, placement: Placement, link: str
) -> None:
    assert place_gpus(gpus, verifiers, link=link, memory=ANY) == placement


@pytest.mark.parametrize(
    ("gpus", "verifiers", "link", "words"),
    [
        (
            (0, 1, 2, 3),
            4,
            "nccl",
            "psd with --tensor-parallel-size 4 needs 5 GPUs (4 verifiers, 1 drafter), 4 can be used: 0, 1, 2, 3",
        ),
        ((2,), 1, "nccl", "psd with --tensor-parallel-size 1 needs 2 GPUs (1 verifier, 1 drafter), 1 can be used: 2"),
        ((0,), 2, "host", "psd with --tensor-parallel-size 2 needs 3 GPUs (2 verifiers, 1 drafter), 1 can be used: 0"),
        ((), 1, "host", "psd with --tensor-parallel-size 1 needs 2 GPUs (1 verifier, 1 drafter), none is visible"),
    ],
)
def test_too_few_are_named(gpus: tuple[int, ...], verifiers: int, link: str, words: str) -> None:
    with pytest.raises(EngineStartError) as few:
        place_gpus(gpus, verifiers, link=link, memory=Memory(fixed=True, share=0.8))
    hint = " (only with --link host can the drafter share a verifier's)"
    assert str(few.value) == words + (hint if len(gpus) == verifiers else "")


@pytest.mark.parametrize("gpus", [(0, 0), (0, 1, 0)])
@pytest.mark.parametrize("link", ["nccl", "host"])
def test_one_that_is_named_twice_is_refused(gpus: tuple[int, ...], link: str) -> None:
    with pytest.raises(EngineStartError, match=f"a GPU is named twice: {', '.join(map(str, gpus))}"):
        place_gpus(gpus, 1, link=link, memory=Memory(fixed=True, share=0.8))


@pytest.mark.parametrize("share", [0.8, 1.0])
def test_the_drafter_shares_the_last_one_where_nobody_has_to_guess_what_is_free(share: float) -> None:
    memory = Memory(fixed=True, share=share)
    assert place_gpus((3,), 1, link="host", memory=memory) == Placement(((3,),), (3,))
    assert place_gpus((0, 1), 2, link="host", memory=memory) == Placement(((0,), (1,)), (1,))


@pytest.mark.parametrize(
    ("link", "memory", "words"),
    [
        ("nccl", Memory(fixed=True, share=0.8), "only with --link host"),
        ("host", Memory(fixed=False, share=0.8), "share GPU 3: that needs both --kv-cache-gib and --drafter-kv-cache"),
        ("host", Memory(fixed=True, share=1.84), "share GPU 3, and may use 184% of its memory: less --engine-args"),
    ],
)
def test_one_that_cannot_be_shared_is_refused(link: str, memory: Memory, words: str) -> None:
    with pytest.raises(EngineStartError, match=words):
        place_gpus((3,), 1, link=link, memory=memory)


@pytest.mark.parametrize(
    ("device_ids", "gpus"),
    [(None, (4, 5, 6)), ([0], (4,)), ([2, 0], (6, 4)), (["GPU-b", "GPU-a"], (6, 4))],
)
def test_the_users_choice_is_from_those_that_are_visible(device_ids: list[int | str], gpus: tuple[int, ...]) -> None:
    """As vLLM reads it: numbers count what `CUDA_VISIBLE_DEVICES` leaves."""
    assert chosen(device_ids, THREE) == gpus


@pytest.mark.parametrize(
    ("device_ids", "words"),
    [
        ([0, 3], "no GPU 3: places 0 to 2 are there"),
        ([4], "no GPU 4: places 0 to 2 are there"),
        ([0, -1], "no GPU -1: places 0 to 2 are there"),
        (["GPU-a", "GPU-other"], "GPU GPU-other is not visible, 3 can be used: 4, 5, 6"),
        (["GPU-a", ""], "there is no GPU '': no such UUID"),
    ],
)
def test_a_choice_that_is_not_there_is_named(device_ids: list[int | str], words: str) -> None:
    def number_of(uuid: str) -> int:
        if not uuid:
            raise RuntimeError("no such UUID")
        return THREE.number_of(uuid)

    with pytest.raises(EngineStartError, match=words):
        chosen(device_ids, replace(THREE, number_of=number_of))


def test_what_is_visible_may_be_nonsense() -> None:
    def visible() -> tuple[int, ...]:
        raise RuntimeError("Invalid device id\nin CUDA_VISIBLE_DEVICES")

    with pytest.raises(EngineStartError, match="CUDA_VISIBLE_DEVICES cannot be found: Invalid device id"):
        chosen(None, replace(THREE, visible=visible))


def flags(**given: Any) -> Namespace:
    """What vLLM's parser makes of an engine's flags."""
    plain = {"tensor_parallel_size": 1, "device_ids": None, "gpu_memory_utilization": 0.92}
    ours = {"distributed_executor_backend": classes.EXECUTOR, "pipeline_parallel_size": 1}
    return Namespace(**{**plain, **ours, "kv_cache_memory_bytes": None, **given})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tensor_parallel_size": 0}, "--tensor-parallel-size must be at least 1, not 0"),
        ({"distributed_executor_backend": "ray"}, "not with --distributed-executor-backend ray"),
        ({"pipeline_parallel_size": 2}, "--pipeline-parallel-size 1, not 2"),
    ],
)
def test_an_engine_whose_ranks_others_would_start_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(EngineStartError, match=words):
        place_engine(flags(**given), link="nccl", drafter_memory=None, drafter_cache_given=False, machine=THREE)


def test_an_engine_is_placed_by_its_flags() -> None:
    def place(parsed: Namespace) -> Placement:
        return place_engine(parsed, link="nccl", drafter_memory=None, drafter_cache_given=False, machine=THREE)

    assert place(flags()) == Placement(((4,),), (5,))
    assert place(flags(tensor_parallel_size=2)) == Placement(((4,), (5,)), (6,))
    assert place(flags(device_ids=[2, 1])) == Placement(((6,),), (5,))
    with pytest.raises(EngineStartError, match="needs 4 GPUs"):
        place(flags(tensor_parallel_size=3))


@pytest.mark.parametrize(
    ("cache", "verifier", "drafter", "drafter_cache", "words"),
    [
        (None, 0.4, None, True, "both --kv-cache-gib"),
        (1 << 30, 0.4, None, False, "both --kv-cache-gib"),
        (1 << 30, 0.6, None, True, "may use 120%"),
        (1 << 30, 0.4, 0.7, True, "may use 110%"),
        (1 << 30, 0.4, None, True, None),
        (1 << 30, 0.8, 0.2, True, None),
    ],
)
def test_an_engine_on_one_gpu_has_to_say_what_each_rank_gets(
    cache: int | None, verifier: float, drafter: float | None, drafter_cache: bool, words: str | None
) -> None:
    def place() -> Placement:
        parsed = flags(device_ids=[1], kv_cache_memory_bytes=cache, gpu_memory_utilization=verifier)
        return place_engine(
            parsed, link="host", drafter_memory=drafter, drafter_cache_given=drafter_cache, machine=THREE
        )

    if words is None:
        assert place() == Placement(((5,),), (5,))
    else:
        with pytest.raises(EngineStartError, match=words):
            place()


def test_gpus_have_the_numbers_that_nvml_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.platforms import current_platform

    monkeypatch.setattr(type(current_platform), "device_count", classmethod(lambda _: 2), raising=False)
    monkeypatch.setattr(type(current_platform), "device_control_env_var", "CUDA_VISIBLE_DEVICES")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus() == (0, 1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3")
    assert visible_gpus() == (5, 3)
    assert chosen(["3"], NVML) == (3,), "a name is vLLM's to read"
