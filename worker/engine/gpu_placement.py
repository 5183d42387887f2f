"""Which GPU each rank of the two-batch engine computes on: the verifiers on the first ones, the drafter on the next.

vLLM gives the ranks of the target model the first of the GPUs that this process may use, in order, and counts no more
than those (`v1/worker/gpu_worker.py`, `config/parallel.py`, 0.32.0). The drafter's is found and checked here, before
any process is started, and named to the drafter alone (`worker/minedraft/drafter_process.py`).

One engine a worker, no data parallelism inside it: on CUDA vLLM gives all data-parallel ranks one list of GPUs, of
which rank r takes tensor_parallel_size from r * tensor_parallel_size on (`v1/engine/utils.py`). No option gives a rank
a list of its own, with room for a drafter, and all ranks would be told one place to meet. So it takes one worker for
each tensor_parallel_size + 1 GPUs, each with its own `--device-ids`: they share the rows of one queue, and an engine
that ends takes no other with it. (`worker/minedraft/checks.py` says so.)
"""

from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from worker.engine.placement import Placement
from worker.engine.protocol import EngineStartError
from worker.engine.rows import one_line
from worker.minedraft import classes


@dataclass(frozen=True, slots=True)
class Machine:
    """How GPUs are found.

    Attributes:
        visible: the numbers of those that this process may use, in its order (see `visible_gpus`).
        number_of: the number of one that is named by its UUID.
    """

    visible: Callable[[], tuple[int, ...]]
    number_of: Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Memory:
    """What is said of the memory of a GPU that a verifier and the drafter share.

    Attributes:
        fixed: whether the sizes of both KV caches are given.
        share: how much of it both together may use, 1 being all.
    """

    fixed: bool
    share: float


def visible_gpus() -> tuple[int, ...]:
    """The GPUs that this process may use, in its order, by the numbers that NVML gives them.

    Starts nothing on them: CUDA that is initialized here would be of no use in a process that is forked.
    """
    from vllm.platforms import current_platform  # noqa: PLC0415 - seconds

    count = current_platform.device_count()
    return tuple(current_platform.visible_device_id_to_physical_device_id(gpu) for gpu in range(count))


def _number_of(uuid: str) -> int:
    from vllm.platforms import current_platform  # noqa: PLC0415 - seconds

    return int(current_platform.device_control_id_to_physical_device_id(uuid))


NVML = Machine(visible_gpus, _number_of)


def place_engine(
    parsed: Namespace,
    *,
    link: str,
    drafter_memory: float | None,
    drafter_cache_given: bool,
    machine: Machine = NVML,
) -> Placement:
    """Share out the GPUs that an engine may use.

    Args:
        parsed: vLLM's own flags.
        link: what carries messages: `nccl` or `host`.
        drafter_memory: the share of its GPU's memory that the drafter may use; None: as much as a verifier.
        drafter_cache_given: whether the size of the drafter's KV cache is.
        machine: how GPUs are found.

    Raises:
        EngineStartError: they do not go round.
    """
    _refuse_elsewhere(parsed)
    verifiers_memory: float = parsed.gpu_memory_utilization
    memory = Memory(
        fixed=drafter_cache_given and parsed.kv_cache_memory_bytes is not None,
        share=verifiers_memory + (verifiers_memory if drafter_memory is None else drafter_memory),
    )
    gpus = chosen(parsed.device_ids, machine)
    return place_gpus(gpus, parsed.tensor_parallel_size, link=link, memory=memory)


def _refuse_elsewhere(parsed: Namespace) -> None:
    """See that all ranks are started here, by us, before vLLM looks for what else it was asked for."""
    if parsed.tensor_parallel_size < 1:
        raise EngineStartError(f"--tensor-parallel-size must be at least 1, not {parsed.tensor_parallel_size}")
    if parsed.distributed_executor_backend != classes.EXECUTOR:
        raise EngineStartError(
            "psd starts its ranks itself, all on this host: not with --distributed-executor-backend "
            f"{parsed.distributed_executor_backend}"
        )
    if parsed.pipeline_parallel_size != 1:
        raise EngineStartError(f"psd needs --pipeline-parallel-size 1, not {parsed.pipeline_parallel_size}")


def chosen(device_ids: Sequence[int | str] | None, machine: Machine) -> tuple[int, ...]:
    """The GPUs that an engine may use, as vLLM reads `--device-ids` (`engine/arg_utils.py`).

    Args:
        device_ids: places in the list of visible GPUs, or UUIDs; None: all visible ones.
        machine: how GPUs are found.

    Returns:
        Their numbers.

    Raises:
        EngineStartError: one of them is not visible.
    """
    try:
        visible = machine.visible()
    except Exception as error:  # NVML's, of a name that is no GPU's
        raise EngineStartError(one_line(f"the GPUs of CUDA_VISIBLE_DEVICES cannot be found: {error}")) from None
    places = f"places 0 to {len(visible) - 1} are there" if visible else "none is there"
    gpus = []
    for name in device_ids or range(len(visible)):
        if isinstance(name, str):
            gpus.append(_named(name, machine))
        elif 0 <= name < len(visible):
            gpus.append(visible[name])
        else:
            raise EngineStartError(f"--device-ids: there is no GPU {name}: {places}, in the order of what is visible")
        if gpus[-1] not in visible:
            raise EngineStartError(f"--device-ids: GPU {name} is not visible, {_can_be_used(visible)}")
    return tuple(gpus)


def _named(uuid: str, machine: Machine) -> int:
    try:
        return machine.number_of(uuid)
    except Exception as error:  # NVML's
        raise EngineStartError(one_line(f"--device-ids: there is no GPU {uuid or repr(uuid)}: {error}")) from None


def place_gpus(gpus: Sequence[int], verifiers: int, *, link: str, memory: Memory) -> Placement:
    """Give each verifier a GPU, in order, and the drafter the next one, or the last verifier's where there is no other.

    Args:
        gpus: those that the engine may use, by number.
        verifiers: ranks of the target model.
        link: what carries messages: `nccl` or `host`.
        memory: what is said of a GPU that is shared.

    Raises:
        EngineStartError: they do not go round, or cannot be shared.
    """
    if len(set(gpus)) < len(gpus):
        raise EngineStartError(f"psd: a GPU is named twice: {', '.join(map(str, gpus))}")
    placed = tuple((gpu,) for gpu in gpus[:verifiers])
    if len(gpus) > verifiers:
        return Placement(placed, (gpus[verifiers],))
    needed = f"{verifiers} verifier{'s' * (verifiers > 1)}, 1 drafter"
    few = f"psd with --tensor-parallel-size {verifiers} needs {verifiers + 1} GPUs ({needed}), {_can_be_used(gpus)}"
    if len(gpus) < verifiers:
        raise EngineStartError(few)
    if link == "nccl":  # which refuses two processes on one GPU
        raise EngineStartError(f"{few} (only with --link host can the drafter share a verifier's)")
    shared = f"verifier and drafter share GPU {gpus[-1]}"
    if not memory.fixed:  # each would find the other's memory in use, or not, as it happens
        raise EngineStartError(f"{shared}: that needs both --kv-cache-gib and --drafter-kv-cache-gib")
    if memory.share > 1:  # whoever starts last would find less than its share free (`v1/worker/utils.py`)
        raise EngineStartError(
            f"{shared}, and may use {memory.share:.0%} of its memory: less --engine-args "
            "'--gpu-memory-utilization 0.4', or less --drafter-gpu-memory-utilization"
        )
    return Placement(placed, (gpus[-1],))


def _can_be_used(gpus: Sequence[int]) -> str:
    return f"{len(gpus)} can be used: {', '.join(map(str, gpus))}" if gpus else "none is visible"
