"""Pictures of timelines are made, of the size that is said, and say whether devices are virtual."""

import struct
from pathlib import Path

import pytest
from matplotlib import image
from timelines import ahead, cut, one_batch, two_batches

from worker.lab.timeline import FIRST, Facts, TraceError
from worker.lab.timeline_png import caption, draw, title_of
from worker.minedraft.stages import Records
from worker.strategies.seam import Way

TENSOR_PARALLEL = {**two_batches(), "verifier_1": two_batches()[FIRST]}
NO_ENGINE_CORE = {FIRST: one_batch()[FIRST]}


@pytest.mark.parametrize(
    "records",
    [
        two_batches(),
        ahead(),
        cut(two_batches(), 1, 9),
        TENSOR_PARALLEL,
        one_batch(draft=20),
        one_batch(1),
        NO_ENGINE_CORE,
    ],
)
def test_a_picture_is_a_png_of_1600_by_450(tmp_path: Path, records: dict[str, Records]) -> None:
    path = tmp_path / "timeline.png"
    draw(records, path, title="a pair", virtual=True)
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert struct.unpack(">II", data[16:24]) == (1600, 450)


def test_pictures_show_the_batches_in_their_colours(tmp_path: Path) -> None:
    path = tmp_path / "timeline.png"
    shares = []
    for records in (two_batches(), one_batch(draft=20), one_batch()):
        draw(records, path, title="", virtual=False)
        pixels = (image.imread(path)[..., :3] * 255).round().astype(int)
        colours = ((0x2F, 0x6D, 0xB5), (0xD0, 0x70, 0x2A), (0xB3, 0xD0, 0xEE), (0xF7, 0xD3, 0xAD))
        shares.append([bool(((pixels == colour).all(axis=-1)).mean() > 0.02) for colour in colours])
    assert shares == [[True, True, True, True], [True, False, True, False], [True, False, False, False]]


def test_a_band_says_what_was_chosen_where_that_is_not_always_two_batches(tmp_path: Path) -> None:
    path, band = tmp_path / "timeline.png", (0xE6, 0xE9, 0xED)
    changing = two_batches()
    changing[FIRST]["way"][20:] = Way.ONE
    shown = []
    for records in (two_batches(), changing, ahead(), one_batch(draft=20)):
        draw(records, path, title="", virtual=False)
        pixels = (image.imread(path)[..., :3] * 255).round().astype(int)
        shown.append(bool((pixels == band).all(axis=-1).mean() > 0.01))
    assert shown == [False, True, True, False]


def test_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(TraceError):
        draw({}, tmp_path / "none.png", title="", virtual=False)


def test_titles_say_what_is_virtual() -> None:
    assert title_of("a pair", virtual=True) == "a pair (virtual devices)"
    assert title_of("a pair", virtual=False) == "a pair"


def test_captions_say_what_was_measured() -> None:
    whole = Facts(verify_ms=25.04, draft_ms=22.13, step_ms=25.61, hidden_share=0.984, requests=32)
    assert caption(whole).split("  ·  ") == [
        *("V = 25 ms", "t = 22.1 ms", "step = 25.6 ms", "hidden share 98%", "32 requests a batch")
    ]
    nothing = Facts(verify_ms=None, draft_ms=None, step_ms=None, hidden_share=None, requests=2)
    assert caption(nothing) == "2 requests a batch"
