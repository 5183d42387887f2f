"""vLLM's platform for CPUs, with asynchronous scheduling and what Triton 3.9's interpreter lacks for vLLM's kernels."""

from typing import Any

import numpy as np
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle
from vllm.platforms.cpu import CpuPlatform


class InterpretedPlatform(CpuPlatform):  # type: ignore[misc] # vLLM's types are not read
    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        asynchronous = vllm_config.scheduler_config.async_scheduling
        super().check_and_update_config(vllm_config)  # which switches it off
        vllm_config.scheduler_config.async_scheduling = asynchronous

    @classmethod
    def register_triton_kernel_overrides(cls) -> None:
        super().register_triton_kernel_overrides()
        fill_gaps()


def fill_gaps() -> None:
    """Once a process: masks that are no booleans, one kernel that cannot be interpreted, a function without a body."""
    import vllm.v1.sample.ops.topk_topp_sampler as top_k_top_p

    builder = InterpreterBuilder
    if getattr(builder, "gaps_filled", False):
        return
    builder.gaps_filled = True
    load, store = builder.create_masked_load, builder.create_masked_store
    builder.create_masked_load = lambda self, pointers, mask, *more: load(self, pointers, as_booleans(mask), *more)
    builder.create_masked_store = lambda self, pointers, value, mask, *more: store(
        self, pointers, value, as_booleans(mask), *more
    )
    top_k_top_p.HAS_TRITON = False  # then PyTorch does it
    libdevice.log1p = lambda x: tl.core.tensor(TensorHandle(np.log1p(x.handle.data), x.handle.dtype), x.type)


def as_booleans(mask: Any) -> Any:
    if mask.data.dtype == np.bool_:
        return mask
    return TensorHandle(mask.data.astype(np.bool_), mask.dtype)
