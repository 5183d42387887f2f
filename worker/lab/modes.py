"""Which classes an engine of the lab has, by mode, and by whether its devices are imagined. Imports no vLLM."""

from collections.abc import Mapping
from dataclasses import dataclass

from worker.lab.profile import Profile
from worker.lab.result import Mode
from worker.minedraft.classes import Ranks

_SOLO = "worker.lab.solo.SoloWorker"
_SCHEDULER = "worker.lab.solo.ClockedScheduler"
_VIRTUAL_SOLO = "worker.lab.virtual.VirtualSoloWorker"
_VIRTUAL = Ranks(verifier="worker.lab.virtual.VirtualVerifierWorker", drafter="worker.lab.virtual.VirtualDrafterWorker")

#: A file of this name in an engine's folder says that its devices are imagined.
MARK = "virtual-devices"
#: Holds the profile of imagined devices, as JSON, for the engine's processes.
PROFILE = "MINEDRAFT_VIRTUAL_DEVICES"


@dataclass(frozen=True, slots=True)
class Classes:
    """What an engine is told.

    Attributes:
        flags: for `ar` and `sd`, in vLLM's notation.
        ranks: for `psd`.
    """

    flags: tuple[str, ...]
    ranks: Ranks


def classes(mode: Mode, *, virtual: bool) -> Classes:
    """The classes that record stages; of `run-batch`, vLLM's own, which do not, unless the devices are imagined."""
    ranks = _VIRTUAL if virtual else Ranks()
    if mode == "psd":
        return Classes((), ranks)
    if mode == "run-batch":
        return Classes(("--worker-cls", _VIRTUAL_SOLO) if virtual else (), ranks)
    return Classes(("--worker-cls", _VIRTUAL_SOLO if virtual else _SOLO, "--scheduler-cls", _SCHEDULER), ranks)


def variables(profile: Profile | None) -> Mapping[str, str]:
    """What the processes of an engine on imagined devices find in their environment."""
    if profile is None:
        return {}
    # They compute next to nothing, and a second thread that spins for more takes a core from the others.
    return {PROFILE: profile.to_json(), "OMP_NUM_THREADS": "1"}
