"""What the comparison must know of the model, before an engine is started."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from worker.engine import platform, vllm_args
from worker.engine.protocol import EngineStartError
from worker.engine.rows import one_line
from worker.engines import vllm_options
from worker.verify.settings import VerifySettings

_VLLM_LEVEL = "VLLM_LOGGING_LEVEL"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Of the model, with the settings it will have.

    Attributes:
        name: what it is called in answers.
        dtype: its weights' and logits', as `float32`.
        temperature: of a request that names none.
        decode: token ids to text; whether special tokens are left out.
    """

    name: str
    dtype: str
    temperature: float
    decode: Callable[[Sequence[int], bool], str]


def facts(settings: VerifySettings) -> ModelFacts:
    """Ask vLLM's own configuration. Takes some 15 s: vLLM is imported, the embedded model built where it is not yet.

    Raises:
        EngineStartError: there is no such model, or a flag is wrong.
        ModelError: the embedded model cannot be built.
    """
    if settings.engine == "fake":
        return ModelFacts(settings.served, "float32", 1.0, lambda _ids, _special: "")
    options, cpu = vllm_options(settings), platform.is_cpu_build()
    vllm_args.check_model(options.model)
    os.environ.setdefault(_VLLM_LEVEL, settings.log_level.upper())  # its warnings are for who runs a worker
    platform.set_environment(os.environ, options.models, cpu=cpu)
    parsed = vllm_args.parse(options, cpu=cpu)

    from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: PLC0415 - seconds
    from vllm.tokenizers import cached_tokenizer_from_config  # noqa: PLC0415

    try:
        config = AsyncEngineArgs.from_cli_args(parsed).create_model_config()
        tokenizer = cached_tokenizer_from_config(config)
    except Exception as error:
        raise EngineStartError(one_line(f"vLLM cannot read the model: {error}")) from None
    default = config.get_diff_sampling_param().get("temperature", 1.0)
    return ModelFacts(
        vllm_args.served_names(parsed)[0],
        str(config.dtype).removeprefix("torch."),
        float(default),
        lambda ids, special: str(tokenizer.decode(list(ids), skip_special_tokens=special)),
    )
