"""What every engine checks in a row before it answers, and how it words what is wrong; knows no engine."""

from collections.abc import Collection

from producer.intake.parameters import no_such_parameter
from producer.record.models import TARGET, URLS, Row
from worker.engine.protocol import RowError

#: Longest message of a row error; vLLM repeats whole prompts in some of its own.
MESSAGE_CHARACTERS = 500


def check_row(row: Row, served: Collection[str]) -> None:
    """Refuse what no engine serving the model names `served` could answer.

    Raises:
        RowError: `unsupported_url`, `streaming_not_supported` or `model_not_found`.
    """
    if row.url not in URLS:
        message = f"only {' and '.join(URLS)} are supported, not url {row.url!r}"
        raise RowError("unsupported_url", one_line(message))
    if row.body.get("stream"):
        raise RowError("streaming_not_supported", "a row cannot be streamed: leave `stream` out")
    model = row.body.get("model")
    if isinstance(model, str) and model not in (*served, TARGET):
        names = ", ".join(repr(name) for name in served)
        raise RowError("model_not_found", one_line(f"the row asks for model {model!r}, this worker serves {names}"))


def check_fields(row: Row, known: Collection[str]) -> None:
    """Refuse parameters that the row's URL does not have: ignoring one would answer another question.

    Raises:
        RowError: `unknown_parameter`, naming the first one.
    """
    for name in row.body:
        if name not in known:
            raise RowError("unknown_parameter", one_line(no_such_parameter(row.url, name, known)))


def one_line(text: str, most: int = MESSAGE_CHARACTERS) -> str:
    """The text on a single line of at most `most` characters, for a terminal or an error row: harmless to both."""
    line = " ".join(text.split())
    short = line if len(line) <= most else line[: most - 3] + "..."
    return "".join(char if char.isprintable() else "?" for char in short)
