"""What intake asks of a request body: enough to know which prompts it holds.

Whether the model can answer it (sampling parameters, context length, token ids, roles) is judged by the worker with
vLLM's own request classes.
"""

from typing import Any

from producer.intake.refused import Refused, kind
from producer.record.models import CHAT_URL, COMPLETIONS_URL

#: The member that holds what is asked, for each URL.
PROMPT_MEMBERS = {CHAT_URL: "messages", COMPLETIONS_URL: "prompt"}


def url_of(body: dict[str, Any]) -> str:
    """The URL that a body without one is meant for. A member that is null counts as absent.

    Raises:
        Refused: it holds neither a prompt nor messages, or both.
    """
    is_chat, is_completion = body.get("messages") is not None, body.get("prompt") is not None
    if is_chat and is_completion:
        raise Refused("prompt_and_messages", 'the line has both "prompt" and "messages"; use one of them')
    if is_chat:
        return CHAT_URL
    if is_completion:
        return COMPLETIONS_URL
    raise Refused("missing_prompt", 'the line has neither "prompt" nor "messages"')


def check_body(url: str, body: dict[str, Any]) -> None:
    """Accept a body for `url`, one of `URLS`.

    Raises:
        Refused: its prompt or messages are missing or of the wrong type, or it asks for a stream.
    """
    member = PROMPT_MEMBERS[url]
    if body.get(member) is None:
        raise Refused(f"missing_{member}", f'the body has no "{member}", which {url} needs')
    url_of(body)
    if url == CHAT_URL:
        _check_messages(body[member])
    else:
        _check_prompt(body[member])
    stream = body.get("stream")
    if stream is not None and stream is not False:
        raise Refused("streaming_not_supported", '"stream" must be false: a batch answers each row at once')


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, list):
        raise Refused("invalid_messages", f'"messages" is {kind(messages)}, not an array of objects')
    if not messages:
        raise Refused("invalid_messages", '"messages" is empty')
    for position, message in enumerate(messages):
        if not isinstance(message, dict):
            raise Refused("invalid_messages", f'"messages"[{position}] is {kind(message)}, not an object')


def _check_prompt(prompt: Any) -> None:
    """OpenAI's four types: a text, token ids, and several of either."""
    prompts: list[Any]
    if isinstance(prompt, str):
        prompts = [prompt]
    elif isinstance(prompt, list):
        several = bool(prompt) and {type(part) for part in prompt} in ({str}, {list})
        prompts = prompt if several else [prompt]
    else:
        raise _invalid_prompt(f'"prompt" is {kind(prompt)}')
    for one in prompts:
        if not one:
            raise Refused("empty_prompt", '"prompt" is empty' if one is prompt else '"prompt" holds an empty prompt')
        if isinstance(one, list):
            _check_token_ids(one)


def _check_token_ids(ids: list[Any]) -> None:
    if {type(token_id) for token_id in ids} != {int}:
        raise _invalid_prompt('"prompt" holds an array of other things than token ids')
    if min(ids) < 0:
        raise _invalid_prompt('"prompt" holds a negative token id')


def _invalid_prompt(what: str) -> Refused:
    return Refused("invalid_prompt", f"{what}; it must be a string, an array of token ids, or an array of either")
