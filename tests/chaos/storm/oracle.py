"""What must become of each line of an input file, worked out from the file alone: nothing of the programs is used."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_WORDS = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "islet", "jetty", "knoll", "larch"]
_CHAT, _COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@dataclass(frozen=True, slots=True)
class Asked:
    """One line that is not blank: its name, or None; what it asks for, or `body` None where it is no request."""

    line: int
    custom_id: str | None
    url: str
    body: dict[str, Any] | None


#: A row -> its text; None: the engine fails it.
Oracle = Callable[[Asked], str | None]


def read_input(path: Path) -> Iterator[Asked]:
    """The rows of a file that `rows.write_job` made, or one like it."""
    with path.open("rb") as file:
        for number, data in enumerate(file, 1):
            if data.strip():
                yield _asked(number, data.decode())


def _asked(number: int, text: str) -> Asked:
    try:
        fields = json.loads(text)
    except ValueError:
        return Asked(number, None, "", None)
    if not isinstance(fields, dict):
        return Asked(number, None, "", None)
    name = fields.pop("custom_id", f"row-{number}")
    if "url" in fields:
        return Asked(number, name, fields["url"], fields["body"])
    if "messages" in fields or "prompt" in fields:
        return Asked(number, name, _CHAT if "messages" in fields else _COMPLETIONS, fields)
    return Asked(number, name, "", None)


def fake_oracle(fail_word: str, tokens: int) -> Oracle:
    """What the fake engine says: words drawn from the hash of what it is asked."""

    def text(asked: Asked) -> str | None:
        assert asked.body is not None
        body = json.dumps(asked.body, sort_keys=True, ensure_ascii=False)
        if fail_word in body:
            return None
        seed = hashlib.sha256(f"{asked.url}\n{body}".encode()).digest()
        length = min(tokens, asked.body.get("max_tokens", tokens))
        return " ".join(_WORDS[byte % 12] for byte in hashlib.shake_256(seed).digest(length))

    return text
