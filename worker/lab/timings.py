"""What a prediction needs to know of a pair of models on its devices, and where that comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from worker.lab.profile import PassCost, Profile
from worker.lab.result import Mode


class Timings(Protocol):
    """A target on its devices and a drafter; `Profile` says what V and t are."""

    def verify_ms(self, requests: int, drafts: int, *, context: int = 0, prefill: int = 0) -> float:
        """V."""

    def draft_ms(self, requests: int, drafts: int, *, context: int = 0, prefill: int = 0) -> float:
        """t, for all drafts; 0 for none."""

    def accepted_at(self, position: int) -> float:
        """Of the drafts at a position, from 0, the share accepted where all before were."""

    def host_ms(self, mode: Mode, requests: int) -> float:
        """What a step of so many requests takes beside V and t and nothing hides, in ms."""


@dataclass(frozen=True, slots=True)
class ProfileTimings:
    """A profile's devices.

    Attributes:
        profile: what they are.
        host: `host_ms` of each mode, whatever the batch; 0 for a mode that is not there.
    """

    profile: Profile
    host: Mapping[Mode, float] = field(default_factory=dict)

    def verify_ms(self, requests: int, drafts: int, *, context: int = 0, prefill: int = 0) -> float:
        """V."""
        return self.profile.verify_ms(requests, drafts, context=context, prefill=prefill)

    def draft_ms(self, requests: int, drafts: int, *, context: int = 0, prefill: int = 0) -> float:
        """t."""
        return self.profile.draft_ms(requests, drafts, context=context, prefill=prefill)

    def accepted_at(self, position: int) -> float:
        """The profile's acceptance."""
        return self.profile.accepted_at(position)

    def host_ms(self, mode: Mode, requests: int) -> float:
        """The same for any batch."""
        return self.host.get(mode, 0.0)

    def solo(self, target: PassCost | None) -> "ProfileTimings | None":
        """On devices that both draft and verify; None where the profile has no such pass of the target."""
        return None if target is None else replace(self, profile=self.profile.solo(target))


@dataclass(frozen=True, slots=True)
class WithDrafter:
    """The same target and acceptance with a drafter that takes a share of the time."""

    timings: Timings
    share: float

    def verify_ms(self, requests: int, drafts: int, *, context: int = 0, prefill: int = 0) -> float:
        """V, as it was."""
        return self.timings.verify_ms(requests, drafts, context=context, prefill=prefill)

    def draft_ms(self, requests: int, drafts: int, *, context: int = 0, prefill: int = 0) -> float:
        """The share of t."""
        return self.share * self.timings.draft_ms(requests, drafts, context=context, prefill=prefill)

    def accepted_at(self, position: int) -> float:
        """As it was."""
        return self.timings.accepted_at(position)

    def host_ms(self, mode: Mode, requests: int) -> float:
        """As it was."""
        return self.timings.host_ms(mode, requests)
