"""What is tried of links on how many GPUs, and how it is judged; what two processes do is in the dry run."""

from argparse import Namespace
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import numpy as np
import pytest
import torch
from gpu import link_checks, links
from gpu.link_checks import DUPLICATE_S, PINGS
from gpu.links import DRAFTER, VERIFIER, Kind, Meeting
from gpu.parts import Check, Checks, Verdict
from gpu.together import Failed

MS = 1_000_000
REFUSED = "rank 0: NcclError: ncclCommInitRank: invalid usage: Duplicate GPU detected : rank 0 and rank 1"


class Processes:
    """What two processes return, or how they fail, by what they were to do."""

    def __init__(self) -> None:
        sent = np.arange(PINGS) * 10 * MS
        self.do: dict[str, Any] = {
            "_only_meet": Failed(REFUSED),
            "_ping": [(sent, sent + MS), (sent + MS // 2, sent + MS // 2, 0)],
            "_alternate": [(0, 20.0), (0, 20.0)],
        }
        self.did: list[tuple[str, str]] = []

    def together(self, target: Any, where: Any, *_: Any, limit_s: float) -> Any:
        assert limit_s > 0
        self.did.append((target.__name__, where.kind))
        answer = self.do[target.__name__]
        if isinstance(answer, Failed):
            raise answer
        return answer


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    found = Processes()
    monkeypatch.setattr(link_checks, "together", found.together)
    return found


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: int) -> list[Check]:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    checks = Checks()
    link_checks.run(checks, Namespace(device="cuda", folder=tmp_path, seed=0))
    return checks.all


def test_one_gpu(processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = run(tmp_path, monkeypatch, 1)
    assert processes.did == [("_only_meet", "nccl"), ("_ping", "host"), ("_alternate", "host")]
    assert {check.verdict for check in checks} == {Verdict.PASS, Verdict.REPORT}
    assert REFUSED in checks[0].measured


def test_two_gpus(processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = run(tmp_path, monkeypatch, 2)
    alternations = [("_alternate", "nccl"), ("_alternate", "one communicator")]
    assert processes.did == [("_ping", "host"), *alternations]
    assert Verdict.FAIL not in {check.verdict for check in checks}
    assert checks[-1].verdict is Verdict.REPORT
    assert "it went through" in checks[-1].measured


@pytest.mark.parametrize(
    "answer", [[None, None], Failed(f"rank 0 did not end within {DUPLICATE_S:g} s"), Failed("rank 0: OSError: no")]
)
def test_one_gpu_twice_must_be_refused(
    answer: Any, processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes.do["_only_meet"] = answer
    assert run(tmp_path, monkeypatch, 1)[0].verdict is Verdict.FAIL


@pytest.mark.parametrize("answer", [[(1, 20.0), (0, 20.0)], [(0, 20.0), (1, 20.0)], Failed("rank 1 died")])
def test_wrong_messages_fail_and_so_does_a_hang(
    answer: Any, processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes.do["_alternate"] = answer
    *_, through, one_communicator = run(tmp_path, monkeypatch, 2)
    assert through.verdict is Verdict.FAIL
    assert one_communicator.verdict is Verdict.REPORT, "a hang is what is expected there"


def test_slow_or_wrong_pings_fail(processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sent, came), (got, answered, _) = processes.do["_ping"]
    processes.do["_ping"] = [(sent, came + 9 * MS), (got + 3 * MS, answered + 3 * MS, 1)]
    _, wrong, down, up, both, _ = run(tmp_path, monkeypatch, 1)
    verdicts = [check.verdict for check in (wrong, down, up, both)]
    assert verdicts == [Verdict.FAIL, Verdict.FAIL, Verdict.FAIL, Verdict.REPORT]
    assert down.measured == "median 3.50 ms, 99 % below 3.50 ms"


def test_the_product_meets_by_itself(processes: Processes, tmp_path: Path) -> None:
    checks = Checks()
    link_checks.run_product(checks, Namespace(folder=tmp_path, link="nccl", seed=0))
    assert processes.did == [("_alternate", "nccl")]
    assert checks.all[0].verdict is Verdict.PASS


@pytest.mark.parametrize("kind", ["host", "nccl"])
@pytest.mark.parametrize("rank", [VERIFIER, DRAFTER])
def test_the_products_ranks_are_asked_to_meet_as_they_want_to_be(
    rank: int, kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    met = []
    for name in ("HostLink", "NcclVerifier", "NcclDrafter"):
        of_product = getattr(links, name)
        connect = create_autospec(of_product.connect, side_effect=lambda *_, name=name: met.append(name))
        monkeypatch.setattr(of_product, "connect", connect)
    Meeting(str(tmp_path / "link"), kind, 5, ("cuda:0", "cuda:1"), product=True).end(rank)
    assert met == ["HostLink" if kind == "host" else ("NcclVerifier", "NcclDrafter")[rank]]


def test_without_vllm_both_directions_of_nccl_have_a_communicator_unless_they_must_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "Communicator", lambda store, name, rank, ranks: (name, rank, ranks))
    monkeypatch.setattr(links, "Streams", lambda device: device)
    for kind, names in (("nccl", ["down", "up"]), ("one communicator", ["down", "down"])):
        for rank in (VERIFIER, DRAFTER):
            end = Meeting(str(tmp_path / kind), kind, 5, ("cuda:0", "cuda:1")).end(rank)
            assert [end._down, end._up] == [(name, rank, 2) for name in names]
