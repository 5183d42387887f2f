"""Profiles by name: the paper's pairs and flat ones, and one line for a name that is not there."""

import pytest

from worker.lab.profile import Profile
from worker.lab.profiles import ProfileError, names, profile

PAIRS = ("qwen3-32b+0.6b", "qwen3-32b+1.7b", "qwen3-32b+4b", "llama3.3-70b-awq+8b")


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("gpu", ["", "@l40", "@a100", "@h100"])
def test_every_pair_is_on_four_devices_and_one_with_its_sources(pair: str, gpu: str) -> None:
    asked = profile(pair + gpu)
    assert (asked.name, asked.devices) == (pair + gpu, 4)
    words = "\n".join(asked.sources)
    for cited in ("data sheet", "config.json", "ASSUMED", "64 heads cannot", "roofline"):
        assert cited in words
    assert Profile.from_json(asked.to_json()) == asked


@pytest.mark.parametrize("pair", PAIRS)
def test_more_of_anything_takes_longer_and_faster_devices_less(pair: str) -> None:
    slow, fast = profile(pair), profile(f"{pair}@h100")
    for requests in (8, 16, 32, 64):
        for drafts in range(1, 6):
            v, t = slow.verify_ms(requests, drafts, context=400), slow.draft_ms(requests, drafts, context=400)
            assert v <= slow.verify_ms(2 * requests, drafts, context=400)
            assert v <= slow.verify_ms(requests, drafts + 1, context=400)
            assert t < slow.draft_ms(requests, drafts + 1, context=400)
            assert fast.verify_ms(requests, drafts, context=400) < v
            assert fast.draft_ms(requests, drafts, context=400) < t


def test_the_default_device_is_the_l40() -> None:
    assert profile("qwen3-32b+1.7b").target == profile("qwen3-32b+1.7b@l40").target


def test_a_larger_drafter_is_slower_and_assumed_to_be_better() -> None:
    small, middle, large = (profile(f"qwen3-32b+{size}") for size in ("0.6b", "1.7b", "4b"))
    assert small.draft_ms(16, 3) < middle.draft_ms(16, 3) < large.draft_ms(16, 3)
    assert small.accepted_at(0) < middle.accepted_at(0) < large.accepted_at(0)


def test_a_replica_on_one_device_is_there_where_both_models_fit() -> None:
    assert profile("llama3.3-70b-awq+8b@h100").target_on_one is not None
    assert profile("llama3.3-70b-awq+8b").target_on_one is None
    assert profile("qwen3-32b+1.7b@h100").target_on_one is None


def test_flat_times_do_not_depend_on_the_batch() -> None:
    flat = profile("flat:25,15,0.6", drafts=3)
    for requests in (1, 32, 64):
        assert flat.verify_ms(requests, 3, context=500, prefill=900) == 25
        assert flat.draft_ms(requests, 3, context=500, prefill=900) == pytest.approx(15)
    assert flat.draft_ms(32, 1) == pytest.approx(5)
    assert (flat.accepted_at(0), flat.accepted_at(9)) == (0.6, 0.6)
    assert flat.target_on_all is None
    assert "made up" in flat.sources[0]


def test_flat_has_an_acceptance_without_one() -> None:
    assert profile("flat:25,15").accepted_at(0) == 0.7


def test_flat_may_say_that_drafts_differ_that_texts_do_not_and_that_tokens_take_time() -> None:
    flat = profile("flat:25,15,0.6,token=0.5,spread=0.4,template=0.3", drafts=3)
    assert (flat.spread, flat.template, flat.accepted_at(0)) == (0.4, 0.3, 0.6)
    assert (flat.verify_ms(10, 3), flat.verify_ms(20, 3), flat.verify_ms(20, 1)) == (25, 40, 25)
    assert flat.draft_ms(20, 3) == pytest.approx(15)
    assert "0.5 ms a token" in flat.sources[0]
    assert Profile.from_json(flat.to_json()) == flat
    plain = profile("flat:25,15,spread=1")
    assert (plain.spread, plain.template, plain.accepted_at(0)) == (1, 0, 0.7)


@pytest.mark.parametrize("text", ["", "qwen", "qwen3-32b+1.7b@", "qwen3-32b+1.7b@b300", "@h100"])
def test_an_unknown_name_is_told_which_there_are(text: str) -> None:
    with pytest.raises(ProfileError) as refused:
        profile(text)
    message = str(refused.value)
    assert "\n" not in message
    assert all(name in message for name in names())


@pytest.mark.parametrize(
    "text",
    [
        *("flat:", "flat:25", "flat:25,x", "flat:0,15", "flat:25,-1", "flat:25,15,1.1", "flat:25,nan", "flat:1,1,1,1"),
        *("flat:25,spread=1", "flat:25,5,spread=1.1", "flat:25,5,template=-1", "flat:25,5,token=-1", "flat:25,5,k=1"),
        *("flat:25,5,spread=0.1,spread=0.2", "flat:25,5,spread=0.1,0.7", "flat:25,5,spread=", "flat:25,5,token=nan"),
    ],
)
def test_flat_numbers_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ProfileError, match="is not flat:V,t"):
        profile(text)
