from producer.intake.digest import JobDigest
from producer.intake.lines import Line, TooLong


def digest(*rows: str, model: str = "m", defaults: dict[str, object] | None = None) -> str:
    job = JobDigest()
    for row in rows:
        job.update(row.encode())
    return job.hexdigest(model, defaults or {})


def test_the_same_job_has_the_same_digest():
    one = digest("a", "b", defaults={"top_p": 1, "seed": 2})
    assert one == digest("a", "b", defaults={"seed": 2, "top_p": 1})
    assert len(one) == 64


def test_everything_counts():
    digests = [
        digest(),
        digest("a"),
        digest("a", "b"),
        digest("b", "a"),
        digest("ab"),
        digest("a", "a"),
        digest("a", model="n"),
        digest("a", defaults={"seed": 1}),
        digest("a", defaults={"seed": "1"}),
        digest("é"),
    ]
    assert len(set(digests)) == len(digests)


def test_asking_does_not_end_it():
    job = JobDigest()
    job.update(b"a")
    assert job.hexdigest("m", {}) == job.hexdigest("m", {}) == digest("a")
    job.update(b"b")
    assert job.hexdigest("m", {}) == digest("a", "b")


def test_the_digest_of_a_known_job_never_changes():
    # Golden value: a change would make every stored job a different one. Raise the version if that is meant.
    golden = "b451216991f9218df6d4af70d1c548a1ecbee8629972088c8fabc9879d476aba"
    assert digest('{"line":1}', model="target", defaults={"seed": 1}) == golden


def test_a_refused_line_is_no_row():
    digests = set()
    for line in (Line(1, b"{a"), Line(1, b"!{a"), TooLong(1, 3, 2), Line(1, b"#3 bytes")):
        job = JobDigest()
        job.update_refused(line)
        digests.add(job.so_far())
    assert len(digests | {digest_of(["{a"])}) == 5


def digest_of(rows: list[str], ask_after: int = -1) -> str:
    job = JobDigest()
    for number, row in enumerate(rows):
        job.update(row.encode())
        if number == ask_after:
            job.so_far()
    return job.so_far()


def test_it_is_the_same_whenever_it_was_asked_before():
    rows = [str(number) for number in range(200)]
    assert {digest_of(rows, ask_after) for ask_after in range(-1, 200, 7)} == {digest_of(rows)}


def test_answering_equal_rows_once_makes_another_job():
    job = JobDigest()
    job.update(b"a")
    assert job.hexdigest("m", {}, dedupe=True) != job.hexdigest("m", {}) == digest("a")
