"""One vLLM engine and its OpenAI serving objects, as `vllm run-batch` sets them up. Imports vLLM.

Everything here runs in one event loop that may be blocked: building the engine blocks it for most of a minute,
and tokenizing, validating and detokenizing keep it busy.
"""

import asyncio
import gc
from argparse import Namespace
from typing import Any

from starlette.datastructures import State
from vllm import envs
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.entrypoints.launchers.cli_args import validate_parsed_serve_args
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.exceptions import GracefulHTTPError, RetryableRequestError
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM

from producer.record.models import Answer, Row
from worker.engine import vllm_rows
from worker.engine.parameters import Abilities
from worker.engine.protocol import EngineDead, EngineStartError, RowError, TransientError
from worker.engine.stuck_templates import EndlessTemplate, StuckTemplates
from worker.engine.vllm_args import served_names
from worker.minedraft.classes import Ranks

#: How long the engine's processes may take to end when they are told to (seconds). Each of the two levels takes
#: 2-5 s on a slow machine; vLLM's own server gives them none, and kills.
SHUTDOWN_S = 30.0
#: How often a death is looked for, should the sign of it not come (seconds).
POLL_S = 0.5
_POOLING = "embedding, scoring or classifying: that is not what rows ask for"
_TEMPLATE_FAILED = "chat_template_failed"
#: Wait before a row that vLLM has no room for is offered again (seconds).
BUSY_S = 0.5


class VllmServer:
    """Answers rows in the loop that opened it."""

    def __init__(self, llm: AsyncLLM, state: State, served: tuple[str, ...], abilities: Abilities) -> None:
        self._llm = llm
        self._served = served
        self._abilities = abilities
        self._templates = StuckTemplates(llm.renderer, envs.VLLM_CHAT_TEMPLATE_RENDER_TIMEOUT)
        self._chat = state.openai_serving_chat
        self._completions = state.openai_serving_completion
        # A model's own generation_config.json may cap every answer; no cap was asked for here. One that the
        # user gives (--override-generation-config) is kept elsewhere, and still holds.
        for serving in (self._chat, self._completions):
            serving.default_sampling_params.pop("max_tokens", None)

    @classmethod
    async def open(cls, parsed: Namespace, *, two_batches: Ranks | None) -> "VllmServer":
        """Start the engine's processes and load the model; blocks the loop for most of a minute.

        Args:
            parsed: vLLM's own flags.
            two_batches: the ranks' classes, where the flags ask for the two-batch engine.

        Raises:
            EngineStartError: the model does not generate text, or two batches cannot run with these flags.
            Exception: whatever vLLM raises.
        """
        if parsed.tool_parser_plugin:
            ToolParserManager.import_tool_parser(parsed.tool_parser_plugin)
        if parsed.reasoning_parser_plugin:
            ReasoningParserManager.import_reasoning_parser(parsed.reasoning_parser_plugin)
        validate_parsed_serve_args(parsed)
        engine_args = AsyncEngineArgs.from_cli_args(parsed)
        config = engine_args.create_engine_config(UsageContext.OPENAI_BATCH_RUNNER)
        if config.model_config.runner_type != "generate":
            raise EngineStartError(f"model {parsed.model} does not generate text, it is for {_POOLING}")
        if two_batches is not None:
            _check_two_batches(config, two_batches)
            # A reasoning parser brings a budget of thinking tokens along, which our sampler does not have.
            config.reasoning_config = None
        await asyncio.sleep(0)  # a cancelled start ends here, before there are processes
        llm = AsyncLLM.from_vllm_config(
            config,
            usage_context=UsageContext.OPENAI_BATCH_RUNNER,
            enable_log_requests=engine_args.enable_log_requests,
            aggregate_engine_logging=engine_args.aggregate_engine_logging,
            disable_log_stats=engine_args.disable_log_stats,
        )
        try:
            tasks = await llm.get_supported_tasks()
            if "generate" not in tasks:
                raise EngineStartError(f"model {parsed.model} does not generate text, it is for {', '.join(tasks)}")
            state = State()
            await init_app_state(llm, state, parsed, tasks)
            if two_batches is not None:
                # By this vLLM's front end refuses min_p and logit_bias, which its own rejection sampler lacks. Two
                # batches sample every position as plain decoding does. (The one other thing that it refuses by this
                # is the replay of traces: `check_config` does.)
                llm.input_processor.speculative_config = None
            abilities = vllm_rows.abilities_of(
                config, reasoning_parser=parsed.reasoning_parser, two_batches=two_batches is not None
            )
            return cls(llm, state, served_names(parsed), abilities)
        except BaseException:
            llm.shutdown(SHUTDOWN_S)
            raise

    @property
    def max_num_seqs(self) -> int:
        """Rows that the engine runs at once."""
        return int(self._llm.vllm_config.scheduler_config.max_num_seqs)

    @property
    def dtype(self) -> str:
        """What weights and logits are computed in, as `float32`."""
        return str(self._llm.vllm_config.model_config.dtype).removeprefix("torch.")

    @property
    def revision(self) -> str:
        """The commit of a model from the Hugging Face Hub; "" for another."""
        return str(getattr(self._llm.vllm_config.model_config.hf_config, "_commit_hash", None) or "")

    async def answer(self, row: Row, job: str = "") -> Answer:
        """Answer one row, of `job` if that is known; cancelling aborts it in the engine.

        Raises:
            RowError: the row is at fault, or vLLM fails on it.
            EngineDead: the engine died.
        """
        request = vllm_rows.parse(row, self._served, self._abilities, job)
        while True:
            try:
                return vllm_rows.answer_of(await self._templates.watch(self._serve(request)))
            except EndlessTemplate:
                raise RowError(_TEMPLATE_FAILED, "the chat template did not come to an end for this row") from None
            except TimeoutError:  # of all that vLLM does with a row, only rendering has a limit
                raise TransientError(_TEMPLATE_FAILED, "the row waited too long for another's chat template") from None
            except (GracefulHTTPError, RetryableRequestError):  # "come back later", for which no row is to blame
                await asyncio.sleep(BUSY_S)
            except EngineDead:
                raise
            except Exception as error:
                if self._llm.errored:
                    raise EngineDead("the engine died before the answer was complete") from error
                raise vllm_rows.fault_of(error) from error

    async def _serve(self, request: Any) -> Any:
        if isinstance(request, CompletionRequest):
            return await self._completions.create_completion(request)
        return await self._chat.create_chat_completion(request)

    async def wait_dead(self) -> str:
        """Return when a process of the engine has died, with what is known of it."""
        while not self._llm.errored:
            # This task ends as soon as vLLM's monitor has seen a process die.
            await asyncio.wait({self._llm.output_handler}, timeout=POLL_S)
        manager = self._llm.engine_core.resources.engine_manager
        codes = manager.finished_procs() if manager is not None else {}
        ends = ", ".join(f"{name} ended with exit code {code}" for name, code in codes.items())
        return ends or "vLLM gave up"

    def close(self) -> None:
        """End the engine's processes; blocks until they have ended. The server is of no use afterwards."""
        self._llm.shutdown(SHUTDOWN_S)
        # vLLM's objects refer to each other in circles; one left over fails, loudly, when the interpreter ends.
        del self._llm, self._chat, self._completions, self._templates
        gc.collect()


def _check_two_batches(config: Any, ranks: Ranks) -> None:
    from worker.minedraft.checks import Unfit, check_config  # noqa: PLC0415 - only this mode needs them

    try:
        check_config(config, ranks)
    except Unfit as unfit:
        raise EngineStartError(f"mode psd: {unfit}") from None
