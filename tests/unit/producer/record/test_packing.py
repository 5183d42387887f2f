"""Rows as calls of `stage`."""

import hashlib
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.record import packing
from producer.record.models import SHARD_ROWS
from producer.record.packing import Call, Copies, Packing


def packed(
    requests: list[int], *, refused: tuple[int, ...] = (), most_bytes: int = 10_000, size: int = 1
) -> list[Call]:
    """The calls for rows that ask these things; rows in `refused` are none."""
    made, calls = Packing(most_bytes), list[Call | None]()
    with Copies() as copies:
        for index, request in enumerate(requests):
            text = b"x" * size
            if index in refused:
                full = made.refuse(index, "error")
            else:
                full = copies.put(made, str(request).encode(), index, text)
            if full:
                calls.append(made.cut(f"after {index}"))
        calls.append(made.cut("end"))
    return [call for call in calls if call is not None]


def rows_of(call: Call) -> list[int]:
    return [index for part in call.parts.values() for index in part.indices]


def joined(indices: range) -> str:
    return ",".join(map(str, indices))


def sha1(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def shards(calls: list[Call]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for call in calls:
        for shard, part in call.parts.items():
            found.setdefault(shard, []).extend(part.indices)
    return found


def test_without_copies_shards_are_full_and_in_order() -> None:
    calls = packed(list(range(40)))
    assert [call.number for call in calls] == [1, 2, 3]
    assert shards(calls) == {0: [*range(16)], 1: [*range(16, 32)], 2: [*range(32, 40)]}
    assert [call.rows for call in calls] == [16, 32, 40]
    assert [call.digest for call in calls] == ["after 15", "after 31", "end"]


def test_copies_go_to_the_shard_of_the_first() -> None:
    calls = packed([*range(20), 3, 18, 3, 99])
    assert shards(calls) == {0: [*range(16), 20, 22], 1: [16, 17, 18, 19, 21, 23]}
    assert sum(call.copies for call in calls) == 3


def test_a_full_shard_gets_no_more_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MOST_ROWS", 4)
    found = shards(packed([1, 1, 1, 1, 1, 1, 1, 1, 1, 2]))
    assert found == {0: [0, 1, 2, 3, 9], 1: [4, 5, 6, 7], 2: [8]}
    monkeypatch.setattr(packing, "MOST_BYTES", 25)
    found = shards(packed([1, 1, 1, 1], size=10))
    assert found == {0: [0, 1], 1: [2, 3]}


def test_refused_rows_go_with_the_next_call() -> None:
    calls = packed([*range(18)], refused=(2, 17))
    assert [(rows_of(call), call.refused) for call in calls] == [
        ([*range(2), *range(3, 17)], [(2, "error")]),
        ([], [(17, "error")]),
    ]


def test_a_call_is_what_the_script_reads() -> None:
    first, last = packed([*range(17), 16, 3, 16, 0], refused=(20,), most_bytes=30, size=2)
    lines = b"\n".join([b"x" * 2] * 16)
    assert first.argv("job", "me") == ["job", "me", 1, "after 15", 0, f"0:{joined(range(16))}", lines, sha1(lines)]
    lines = b"\n".join([b"x" * 2] * 4)
    assert last.argv("job", "me") == [
        "job", "me", 2, "end", 3, "1:16,17,19 0:18", lines, sha1(lines), 20, "error",
    ]  # fmt: skip
    (alone,) = packed([0], refused=(0,))
    assert alone.argv("job", "me") == ["job", "me", 1, "end", 0, "", b"", sha1(b""), 0, "error"]


def test_shuffled_copies_take_few_calls() -> None:
    """However many shards they go to; each call is full of them, or of new rows."""
    requests = [number % 2000 for number in range(20_000)]
    Random(1).shuffle(requests)
    calls = packed(requests, most_bytes=1 << 20)
    assert len(calls) <= 2000 / SHARD_ROWS + 18_000 / packing._PAGE + 1
    assert {call.size for call in calls[:-1]} <= set(range(SHARD_ROWS, packing._PAGE + SHARD_ROWS))


@settings(deadline=None)
@given(st.lists(st.integers(0, 40), max_size=400), st.sets(st.integers(0, 399)), st.integers(1, 300))
def test_every_row_is_in_one_call_and_equal_ones_meet(requests: list[int], refused: set[int], most_bytes: int) -> None:
    calls = packed(requests, refused=tuple(refused), most_bytes=most_bytes)
    rows = [index for call in calls for index in rows_of(call)]
    bad = [index for call in calls for index, _ in call.refused]
    assert sorted(rows) == [index for index in range(len(requests)) if index not in refused]
    assert sorted(bad) == [index for index in range(len(requests)) if index in refused]
    found = shards(calls)
    assert sorted(found) == list(range(len(found)))
    assert all(len({requests[index] for index in shard}) <= SHARD_ROWS for shard in found.values())
    wanted = Counter(
        requests[index] for shard in found.values() for index in {requests[at]: at for at in shard}.values()
    )
    assert set(wanted.values()) <= {1}, "rows with one request are in one shard"
    assert [call.number for call in calls] == list(range(1, len(calls) + 1))
    assert packed(requests, refused=tuple(refused), most_bytes=most_bytes) == calls
