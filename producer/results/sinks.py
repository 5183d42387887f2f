"""Where lines of results go: into one file, or failed rows into one of their own."""

from dataclasses import dataclass
from pathlib import Path

from producer.errors import Refused
from producer.results.formats import Format, format_of, packing
from producer.results.manifest import WrittenFile
from producer.results.outputs import Output, Outputs, Stream
from producer.results.shapes import Tally
from producer.results.writers import Writer, writer


def manifest_beside(results: Path) -> Path:
    """Where the manifest of a results file is."""
    return results.with_name(f"{results.name}.manifest.json")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a user wants written.

    Attributes:
        results: a file, which appears at the end; or a stream, such as standard output.
        errors: where failed rows go instead, as OpenAI's batches have it; None: they are among the others.
        format: of all files; None: as their names say.
        manifest: whether `results`, if it is a file, gets one beside it.
    """

    results: Path | Stream
    errors: Path | Stream | None = None
    format: Format | None = None
    manifest: bool = True

    @property
    def manifest_path(self) -> Path | None:
        """Where the manifest goes; None: there is none."""
        if not self.manifest or not isinstance(self.results, Path):
            return None
        return manifest_beside(self.results)

    @property
    def files(self) -> list[Path]:
        """The files that appear, without the manifest."""
        return [path for path in (self.results, self.errors) if isinstance(path, Path)]

    @property
    def is_as_stored(self) -> bool:
        """Whether `results` is made of the lines of the record as they are, and nothing else is written."""
        return (
            isinstance(self.results, Path)
            and self.errors is None
            and self.format_of(self.results) is Format.OPENAI
            and not packing(self.results.name)
        )

    def check(self) -> None:
        """See that it can be done at all.

        Raises:
            Refused: two files are one, or Parquet is wanted in a stream.
        """
        if len({path.resolve() for path in self.files}) < len(self.files):
            raise Refused(f"{self.errors}: the results go there already; name another file for failed rows")
        if self.format is Format.PARQUET and not isinstance(self.results, Path):
            raise Refused("Parquet needs a file: -o FILE")

    def format_of(self, place: Path | Stream) -> Format:
        """The format of what is written to one of the places."""
        named = format_of(place) if isinstance(place, Path) else Format.OPENAI
        if self.format is None or (self.format is Format.PARQUET and place is self.errors):
            return named  # failed rows beside a table may well be lines
        return self.format


@dataclass(slots=True)
class _Sink:
    name: str
    holds: str
    format: Format
    stream: Stream
    writer: Writer
    lines: int = 0

    def write(self, lines: bytes) -> None:
        if lines:
            self.writer.write(lines)
            self.lines += lines.count(b"\n")

    def close(self) -> WrittenFile:
        self.writer.close()
        size, sha256 = (self.stream.size, self.stream.sha256) if isinstance(self.stream, Output) else (0, "")
        return WrittenFile(self.name, self.holds, self.format.value, self.lines, size, sha256)


class Sinks:
    """All that is wanted, fed with lines of results; `tally` counts them."""

    def __init__(self, outputs: Outputs, wanted: Wanted) -> None:
        """Open everything.

        Raises:
            Refused: as `Wanted.check` and `writers.writer`.
            OSError: a file cannot be made.
        """
        wanted.check()
        self.tally = Tally()
        apart = wanted.errors is not None
        self._results = _sink(outputs, wanted, wanted.results, "answered" if apart else "results")
        self._failed = _sink(outputs, wanted, wanted.errors, "failed") if wanted.errors is not None else None

    def write(self, lines: bytes) -> None:
        """Write whole lines of OpenAI's batch output shape."""
        parted = self.tally.add(lines)
        if self._failed is None:
            self._results.write(lines)
        else:
            self._results.write(parted.answered)
            self._failed.write(parted.failed)

    def flush(self) -> None:
        """Let readers of a stream have what was written."""
        for sink in (self._results, self._failed):
            if sink is not None:
                sink.stream.flush()

    def close(self) -> list[WrittenFile]:
        """Write what is held back; returns what there is now."""
        return [sink.close() for sink in (self._results, self._failed) if sink is not None]


def _sink(outputs: Outputs, wanted: Wanted, place: Path | Stream, holds: str) -> _Sink:
    name = place.name if isinstance(place, Path) else ""
    stream = outputs.add(place) if isinstance(place, Path) else place
    chosen = wanted.format_of(place)
    return _Sink(name, holds, chosen, stream, writer(chosen, stream, name))
