"""Lets vLLM's V2 runner, which is made of Triton kernels, run without a GPU: through Triton's interpreter.

On `PYTHONPATH` this folder is a distribution with two entry points: a Triton backend, without which Triton cannot be
imported on a machine without a GPU, and a vLLM platform, which is vLLM's own for CPUs with asynchronous scheduling.
Nothing of vLLM is edited. Slow, and so for tests only.
"""


def register() -> str:
    """Where vLLM finds the platform."""
    return "interpreted_triton.platform.InterpretedPlatform"
