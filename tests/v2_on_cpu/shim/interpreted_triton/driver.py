"""The half of a Triton backend that knows the device: there is none, and Triton must never choose this one."""

from typing import Any

import torch
from triton.backends.driver import DriverBase


class InterpreterDriver(DriverBase):  # type: ignore[misc] # Triton's types are not read
    @staticmethod
    def is_active() -> bool:
        return False

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError

    def get_current_target(self) -> Any:
        raise NotImplementedError

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_benchmarker(self) -> Any:
        raise NotImplementedError
