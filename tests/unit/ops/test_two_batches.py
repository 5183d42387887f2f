"""What `make demo` reads from a worker's /metrics, and what it says about it."""

import runpy

from shell import ROOT

two_batches = runpy.run_path(str(ROOT / "ops" / "two_batches.py"))
measured, in_words = two_batches["measured"], two_batches["in_words"]

PAGE = """\
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0"} 330.0
# TYPE minedraft_stage_seconds histogram
minedraft_stage_seconds_sum{rank="verifier_0",stage="forward"} 9.5
minedraft_stage_seconds_count{rank="verifier_0",stage="forward"} 100.0
# TYPE minedraft_verify_seconds histogram
minedraft_verify_seconds_bucket{le="0.1"} 60.0
minedraft_verify_seconds_bucket{le="+Inf"} 100.0
minedraft_verify_seconds_sum 10.0
minedraft_verify_seconds_count 100.0
# TYPE minedraft_draft_seconds histogram
minedraft_draft_seconds_sum 8.0
minedraft_draft_seconds_count 160.0
# TYPE minedraft_hidden_seconds_total counter
minedraft_hidden_seconds_total 6.0
# TYPE minedraft_drafted_tokens_total counter
minedraft_drafted_tokens_total{position="1"} 200.0
# TYPE minedraft_accepted_tokens_total counter
minedraft_accepted_tokens_total{position="1"} 130.0
"""


def test_times_are_means_and_the_hidden_share_is_of_the_smaller_total() -> None:
    run = measured(PAGE)
    assert (run.verify_ms, run.draft_ms, run.hidden, run.acceptance) == (100.0, 50.0, 0.75, 0.65)
    longer = measured(PAGE.replace("minedraft_draft_seconds_sum 8.0", "minedraft_draft_seconds_sum 16.0"))
    assert (longer.draft_ms, longer.hidden) == (100.0, 0.6)


def test_nothing_is_measured_before_the_first_drafts_were_verified() -> None:
    assert measured("") is None
    assert measured(PAGE.replace("200.0", "0.0").replace("130.0", "0.0")) is None


def test_the_words_are_those_numbers() -> None:
    numbers, reason = in_words(measured(PAGE))
    for words in ("65% of the drafts accepted", "V = 100 ms", "t = 50 ms", "75% of the draft time hidden"):
        assert words in numbers
    for words in ("plain decoding is faster", "every second row 1.65", "more than 2", "takes 0.50 V"):
        assert words in reason
