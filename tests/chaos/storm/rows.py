"""The input: files of short rows, some of them bad on purpose, the same for the same seed."""

import json
import random
from pathlib import Path

#: A row whose body has this word is failed by the fake engine (`--fail-on`).
FAIL_WORD = "unanswerable"

#: Lines that intake refuses.
_BAD = ('{"prompt": "cut off', "[1, 2, 3]", '{"custom_id": "bad-{n}", "question": "no prompt"}', '{"temperature": 1}')

_FAILED_SHARE, _BAD_SHARE, _BLANK_SHARE = 0.01, 0.005, 0.002

#: Most words that make a row longer: a producer sends what it has read only when there is a megabyte of it.
_PADDING = 150


def write_job(path: Path, seed: int, rows: int) -> None:
    """A file of `rows` rows; blank lines come on top."""
    dice = random.Random(seed)
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            if dice.random() < _BLANK_SHARE:
                file.write("\n")
            file.write(_line(dice, f"{path.stem}-{number}") + "\n")


def _line(dice: random.Random, name: str) -> str:
    if dice.random() < _BAD_SHARE:
        return dice.choice(_BAD).replace("{n}", name)
    word = FAIL_WORD if dice.random() < _FAILED_SHARE else "question"
    text = f"{word} {name} \u2028 é {'and so on ' * dice.randrange(_PADDING)}"
    body: dict[str, object] = {"max_tokens": dice.randrange(1, 24)} if dice.random() < 0.5 else {}
    messages = {"messages": [{"role": "user", "content": text}], **body}
    match dice.randrange(4):
        case 0:
            row: dict[str, object] = {"prompt": text, **body}  # called after its line
        case 1:
            row = {"custom_id": name, "prompt": text, **body}
        case 2:
            row = {"custom_id": name, **messages}
        case _:
            url = "/v1/chat/completions"
            row = {"custom_id": name, "method": "POST", "url": url, "body": {"model": "storm", **messages}}
    return json.dumps(row, ensure_ascii=False)
