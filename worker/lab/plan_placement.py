"""What a plan says to start: the placement of its fastest scenario, as `worker run --plan` takes it."""

from worker.lab.plan import Copies, Plan
from worker.lab.result import Scenario
from worker.plan_file import PlannedPlacement


def placement(plan: Plan, devices: int | None = None) -> PlannedPlacement:
    """The placement that gives the most tokens/s.

    Args:
        plan: what is known.
        devices: how many there are, for copies of one placement, each of which a worker runs; None: whatever the
            fastest scenario takes.

    Raises:
        ValueError: none fits on so many devices.
    """
    ways = plan.on(devices) if devices else [Copies(prediction, 1, 0) for prediction in plan.best]
    if not ways:
        raise ValueError(f"nothing that was planned fits on {devices} devices")
    best = max(ways, key=lambda way: way.tokens_per_s)
    scenario = best.prediction.scenario
    rivals = (way for way in ways if way is not best)
    second = max(rivals, key=lambda way: way.tokens_per_s, default=None)
    why = f"{_named(best)} {best.tokens_per_s:,.0f} tokens/s"
    if second:
        why += f", {_named(second)} {second.tokens_per_s:,.0f}"
    if scenario.mode == "psd":
        # How many are drafted is chosen while rows are answered.
        most = max(one.scenario.drafts for one in plan.every)
        return PlannedPlacement("auto", scenario.devices - 1, most, why)
    if scenario.mode == "sd":
        return PlannedPlacement("sd", scenario.devices, scenario.drafts, why)
    return PlannedPlacement("ar", scenario.devices, 0, why)


def _named(way: Copies) -> str:
    copies = f"{way.copies} x " if way.copies > 1 else ""
    return f"{copies}{_scenario(way.prediction.scenario)}"


def _scenario(scenario: Scenario) -> str:
    drafts = f" k={scenario.drafts}" if scenario.drafts else ""
    return f"{scenario.name}{drafts} with {scenario.in_flight} in flight"
