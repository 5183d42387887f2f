"""The half of a Triton backend that compiles. It is asked for nothing: kernels are interpreted."""

from typing import Any

from triton.backends.compiler import BaseBackend


class InterpreterBackend(BaseBackend):  # type: ignore[misc] # Triton's types are not read
    @staticmethod
    def supports_target(target: Any) -> bool:
        return False

    def hash(self) -> str:
        return "interpreted"

    def parse_options(self, options: dict[str, Any]) -> object:
        raise NotImplementedError

    def add_stages(self, stages: dict[str, Any], options: object, language: Any) -> None:
        raise NotImplementedError

    def load_dialects(self, context: Any) -> None:
        pass

    def get_module_map(self) -> dict[str, Any]:
        return {}
