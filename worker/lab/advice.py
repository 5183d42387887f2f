"""Whether two batches pay, in words."""

from collections.abc import Callable, Sequence

from worker.lab.predict import Prediction

#: Drafters are tried in steps of this share of the time that this one takes.
_STEPS = 100

#: What is compared: all devices together, or one of them.
_Measure = Callable[[Prediction], float]


def advice(best: Sequence[Prediction], with_drafter: Callable[[float], Sequence[Prediction]]) -> tuple[str, ...]:
    """Say whether two batches pay, and where they do not, what the drafter would have to take.

    Args:
        best: each scenario at its best number of drafts, `psd` and at least one more.
        with_drafter: the same, if the drafter took a share (from 0 to 1) of its time.
    """
    psd, rivals = _apart(best)
    rest: tuple[str, ...]
    if not _pays(best, _total):
        verdict, rest = "Two batches do not pay", (_needed("the fastest", with_drafter, _total),)
    elif not _pays(best, _per_device):
        verdict = "Two batches are fastest but do not pay per device"
        rest = (_needed("the best per device", with_drafter, _per_device),)
    else:
        verdict, rest = "Two batches pay", _slower_side(psd)
    return f"{verdict}: {_compared(psd, rivals)}.", *rest


def _compared(psd: Prediction, rivals: Sequence[Prediction]) -> str:
    total = ", ".join(
        f"{psd.tokens_per_s / rival.tokens_per_s:.2f} x {_name(rival)}"
        for rival in rivals
        if rival.scenario.devices > 1 or psd.scenario.devices == 2
    )
    device = max(rivals, key=_per_device)
    share = _per_device(psd) / _per_device(device)
    return (
        f"{_name(psd)} gives {psd.tokens_per_s:,.0f} tokens/s on {psd.scenario.devices} devices = {total}; "
        f"per device {share:.2f} x {_name(device)}"
    )


def _name(one: Prediction) -> str:
    return f"{one.scenario.name} k={one.scenario.drafts}" if one.scenario.drafts else one.scenario.name


def _total(prediction: Prediction) -> float:
    return prediction.tokens_per_s


def _per_device(prediction: Prediction) -> float:
    return prediction.tokens_per_s_per_device


def _apart(best: Sequence[Prediction]) -> tuple[Prediction, list[Prediction]]:
    (psd,) = (one for one in best if one.scenario.mode == "psd")
    return psd, [one for one in best if one is not psd]


def _pays(best: Sequence[Prediction], measure: _Measure) -> bool:
    psd, rivals = _apart(best)
    return measure(psd) > max(measure(rival) for rival in rivals)


def _needed(what: str, with_drafter: Callable[[float], Sequence[Prediction]], measure: _Measure) -> str:
    """What the drafter would have to take. A cheaper drafter helps `sd`, too, so it is searched, not solved for."""
    for step in range(_STEPS - 1, -1, -1):
        best = with_drafter(step / _STEPS)
        if _pays(best, measure):
            psd, _ = _apart(best)
            return (
                f"The drafter is not cheap enough: two batches would be {what} at t = {psd.draft_ms:.1f} ms "
                f"(k={psd.scenario.drafts}, {psd.scenario.batch} requests), {step / _STEPS:.0%} of what it takes."
            )
    return (
        f"No drafter of this acceptance, however cheap, would make two batches {what} here, with any k that was tried."
    )


def _slower_side(psd: Prediction) -> tuple[str, ...]:
    if psd.draft_ms <= psd.verify_ms:
        return ()
    return (
        f"The drafter is the slower side (t = {psd.draft_ms:.1f} ms, V = {psd.verify_ms:.1f} ms): "
        "a cheaper one would gain more.",
    )
