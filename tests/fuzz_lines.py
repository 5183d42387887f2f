"""Lines that nobody sane would submit: seeded, and of every kind.

A fuzzed line may hold raw newlines and may be blank: whoever counts rows counts what lies between newlines.
"""

import json
from collections.abc import Callable, Iterator
from random import Random

#: The longest line that intake reads has 16 MiB.
_GIANT = 10_000_000
_DEEP = 100_000

_URLS = ("/v1/chat/completions", "/v1/completions")

_CONTROLS = (
    "\x00",
    "\x07",
    "\x1b[31m",
    "\x1b]0;owned\x07",
    "\x7f",
    "\x85",
    "\x9b2J",
    "\u2028",
    "\u2029",
    "\u202e",
    "\ufeff",
)

_HOSTILE_NAMES = (
    "../../../../{}",
    "/etc/passwd{}",
    "..\\..\\{}",
    "C:\\{}",
    "~root/{}",
    "$(touch {})",
    "`touch {}`",
    "; rm -rf {}",
    "-o {}",
    "--output={}",
    "%s%n{}",
    "<script>{}</script>",
    "{}.jsonl",
    "con:{}",
    "é\u0301{}😀",
    "\u202e{}",
    "[red]{}[/red]",
    ":smile:{}",
)

#: JSON of every type; "@" becomes a name that no other line has.
_LEGAL_VALUES = (
    "null",
    "true",
    "0",
    "-1",
    "1.5",
    '""',
    '"@"',
    "[]",
    "{}",
    "[[]]",
    "[null]",
    '[{"role":1}]',
    '{"a":{}}',
)

_ODD_VALUES = (
    *_LEGAL_VALUES,
    *("NaN", "Infinity", "-Infinity", "1e999", "-1e-999", "9" * 19, "-" + "9" * 30, "9" * 5000, "0." + "9" * 5000),
    *(
        '"\\ud800"',
        '"\\udc00\\ud800"',
        '"\\u0000"',
        '"\\u001b[2J"',
        '"\\u2028@"',
        '"\\x"',
        "'x'",
        "undefined",
        "01",
        ".5",
    ),
)

_FIELDS = (
    *("custom_id", "method", "url", "body", "prompt", "messages", "stream", "model", "max_tokens", "temperature"),
    *("n", "stop", "logit_bias", "tools", "response_format", "seed", "__class__", "", "\\u0000", "\\ud800", "\x1b[1m"),
)


def fuzzed_lines(count: int, seed: int) -> Iterator[bytes]:
    """`count` lines, the same for the same seed; no two of them have one `custom_id`."""
    random = Random(seed)
    for _ in range(count):
        kind = random.choices(_KINDS, _WEIGHTS)[0]
        yield kind(random)


def giants() -> Iterator[bytes]:
    """A few lines that are each nearly as long as intake reads, the last one longer; the first two are good rows."""
    yield b'{"custom_id":"giant-prompt","prompt":"' + b"x" * _GIANT + b'"}'
    yield b'{"custom_id":"giant-words","prompt":"' + b"word " * (_GIANT // 5) + b'"}'
    yield b'{"custom_id":"' + b"n" * _GIANT + b'","prompt":"x"}'
    yield b'{"custom_id":"giant-model","prompt":"x","model":"' + b"m" * _GIANT + b'"}'
    yield b'{"custom_id":"giant-integer","prompt":"x","seed":' + b"9" * _GIANT + b"}"
    yield b"[" * _GIANT
    yield b'{"prompt":"' + b"x" * (2 * _GIANT) + b'"}'


def hostile_names(random: Random) -> list[str]:
    """One name of each hostile shape that is a legal `custom_id`."""
    return [shape.replace("{}", _token(random)) for shape in _HOSTILE_NAMES]


def _token(random: Random) -> str:
    return f"{random.getrandbits(64):016x}"


def _value(random: Random, values: tuple[str, ...]) -> str:
    return random.choice(values).replace("@", _token(random))


def _fields(random: Random) -> dict[str, object]:
    """A line as it should be."""
    body: dict[str, object] = {"temperature": random.random(), "max_tokens": random.randrange(1, 64)}
    text = " ".join(random.choices(("what", "is", "été", "日本", "😀", "\u2028", '"', "\\", "[", "{"), k=8))
    chat = random.random() < 0.5
    body |= {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}
    line: dict[str, object] = {"custom_id": _token(random)}
    if random.random() < 0.5:
        return line | {"method": "POST", "url": _URLS[not chat], "body": body}
    return line | body


def _good(random: Random) -> bytes:
    return json.dumps(_fields(random), ensure_ascii=random.random() < 0.5).encode()


def _flipped(random: Random) -> bytes:
    line = bytearray(_good(random))
    for _ in range(random.choice((1, 1, 2, 8, 64))):
        line[random.randrange(len(line))] ^= 1 << random.randrange(8)
    return bytes(line)


def _cut(random: Random) -> bytes:
    line = _good(random)
    return line[: random.randrange(len(line))]


def _spliced(random: Random) -> bytes:
    """A piece of it repeated, moved or replaced by noise."""
    line = _good(random)
    start, stop = sorted(random.randrange(len(line)) for _ in range(2))
    piece = random.choice((b"", line[start:stop] * 2, line[stop:], random.randbytes(random.randrange(64))))
    return line[:start] + piece + line[stop:]


def _noise(random: Random) -> bytes:
    return random.randbytes(random.randrange(200))


def _odd_value(random: Random) -> bytes:
    """A field of any type where another is expected, written by hand: much of it is no JSON."""
    line = json.dumps(_fields(random))
    name, value = random.choice(_FIELDS), _value(random, _ODD_VALUES)
    if random.random() < 0.5 and '"body": {' in line:
        return line.replace('"body": {', f'"body": {{"{name}": {value}, ', 1).encode()
    return f'{line[:-1]}, "{name}": {value}}}'.encode()


def _wrong_type(random: Random) -> bytes:
    fields = _fields(random)
    fields[random.choice(tuple(fields))] = json.loads(_value(random, _LEGAL_VALUES))
    return json.dumps(fields).encode()


def _control(random: Random) -> bytes:
    """A control character, raw or escaped, in a name, a key or a text."""
    fields = _fields(random)
    odd = random.choice(_CONTROLS) + _token(random)
    match random.randrange(3):
        case 0:
            fields["custom_id"] = odd
        case 1:
            fields[odd] = odd
        case _:
            fields = {"custom_id": _token(random), "prompt": odd, "model": random.choice(("target", odd))}
    text = json.dumps(fields, ensure_ascii=random.random() < 0.5)
    return (text.replace("\\u001b", "\x1b") if random.random() < 0.3 else text).encode()


def _hostile_name(random: Random) -> bytes:
    return json.dumps(_fields(random) | {"custom_id": random.choice(hostile_names(random))}).encode()


def _framed(random: Random) -> bytes:
    """What may stand around a line, or in its place."""
    around = random.choice(
        ("\ufeff", "\r", "\x00", " \t", "\x0b", "\x0c", "\u00a0", "\u2028", ",", "data: ", "\n", "\x1a")
    )
    line = random.choice((_good(random), b"", b"null", b"7", b'"text"', b"[]", b"{}"))
    before, after = random.choice(((around, ""), ("", around), (around, around)))
    return before.encode() + line + after.encode()


def _deep(random: Random) -> bytes:
    depth = random.choice((90, 99, 101, 500, 990, 1000, 5000, _DEEP))
    opened, closed = random.choice((("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")))
    nested = opened * depth + "1" + closed * random.choice((0, depth))
    return random.choice((nested, f'{{"custom_id":"{_token(random)}","prompt":{nested}}}')).encode()


def _wide(random: Random) -> bytes:
    """Arrays and objects with very many members, most of them legal."""
    many = random.choice((1_000, 20_000))
    prompt = random.choice(
        (
            json.dumps([random.randrange(50_000) for _ in range(many)]),
            json.dumps(["x"] * many),
            "[" + "[]," * many + "[]]",
            json.dumps({str(number): number for number in range(many)}),
        )
    )
    return f'{{"custom_id":"{_token(random)}","prompt":{prompt}}}'.encode()


def _other_encoding(random: Random) -> bytes:
    return _good(random).decode().encode(random.choice(("utf-16", "utf-16-le", "utf-7", "utf-32", "utf-8-sig")))


_KINDS: tuple[Callable[[Random], bytes], ...] = (
    *(_good, _flipped, _cut, _spliced, _noise, _odd_value, _wrong_type, _control, _hostile_name, _framed),
    *(_other_encoding, _deep, _wide),
)
_WEIGHTS = (20, 15, 10, 10, 5, 12, 8, 8, 5, 5, 2, 1, 1)
