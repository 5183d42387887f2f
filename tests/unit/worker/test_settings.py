"""What `worker run` can be told, and by whom."""

from pathlib import Path

import pytest

from worker.settings import RunSettings, UsageError, read_settings


@pytest.fixture(autouse=True)
def _nothing_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in RunSettings.model_fields:
        monkeypatch.delenv(f"MINEDRAFT_{name.upper()}", raising=False)


def test_flags_win_over_variables_and_those_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "minedraft.toml").write_text('mode = "sd"\nmax_num_seqs = 3\nmodel = "file"\n')
    monkeypatch.setenv("MINEDRAFT_MAX_NUM_SEQS", "4")
    monkeypatch.setenv("MINEDRAFT_MODEL", "variable")
    settings = read_settings(["--model", "flag"])
    assert (settings.mode, settings.max_num_seqs, settings.model) == ("sd", 4, "flag")


@pytest.mark.parametrize("where", ["flag", "variable"])
def test_another_file_can_be_named(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other.toml").write_text("max_num_seqs = 7\n")
    monkeypatch.setenv("MINEDRAFT_CONFIG", "other.toml" if where == "variable" else "")
    assert read_settings(["--config", "other.toml"] if where == "flag" else []).max_num_seqs == 7


@pytest.mark.parametrize("flag", ["--redis", "--redis-url"])
def test_redis_by_flag(flag: str) -> None:
    assert read_settings([flag, "redis://x"]).redis_url == "redis://x"


def test_redis_by_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINEDRAFT_REDIS_URL", "redis://y")
    assert read_settings([]).redis_url == "redis://y"


@pytest.mark.parametrize(
    ("argv", "served"),
    [([], "target"), (["--model", "/m"], "/m"), (["--model", "/m", "--served-model-name", "n"], "n")],
)
def test_the_served_name(argv: list[str], served: str) -> None:
    assert read_settings(argv).served == served


def test_two_batches_are_the_default() -> None:
    assert read_settings([]).mode == "psd"


def test_what_gpus_have_is_the_platforms_to_say_unless_asked() -> None:
    assert (read_settings([]).link, read_settings([]).drafter_gpu_memory_utilization) == (None, None)
    settings = read_settings(["--link", "host", "--drafter-gpu-memory-utilization", "0.3"])
    assert (settings.link, settings.drafter_gpu_memory_utilization) == ("host", 0.3)


def test_cores_are_kept_as_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINEDRAFT_DRAFTER_CPUS", "7")
    settings = read_settings(["--verifier-cpus", "0,2-5"])
    assert (settings.verifier_cpus, settings.drafter_cpus) == ("0,2-5", "7")


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (["--max-num-seqs", "0"], "--max-num-seqs"),
        (["--max-num-seqs", "many"], "--max-num-seqs"),
        (["--mode", "fast"], "--mode"),
        (["--verifier-cpus", "0,x"], "--verifier-cpus: '0,x' is not a list like 0,2-4"),
        (["--drafter-cpus", "5-2"], "--drafter-cpus: '5-2' counts backwards"),
        (["--drafter-kv-cache-gib", "0"], "--drafter-kv-cache-gib"),
        (["--drafter-kv-cache-gib", "inf"], "--drafter-kv-cache-gib"),
        (["--kv-cache-gib", "inf"], "--kv-cache-gib"),
        (["--kv-cache-gib", "nan"], "--kv-cache-gib"),
        (["--draft-sample-method", "often"], "--draft-sample-method"),
        (["--link", "rope"], "--link"),
        (["--drafter-gpu-memory-utilization", "0"], "--drafter-gpu-memory-utilization"),
        (["--drafter-gpu-memory-utilization", "1.1"], "--drafter-gpu-memory-utilization"),
        (["--bogus"], "--bogus"),
        (["surplus"], "surplus"),
        (["--metrics-port", "65536"], "--metrics-port"),
        (["--config", "missing.toml"], "missing.toml"),
        (["--model"], "--model"),
    ],
)
def test_nonsense_is_one_line_that_names_it(argv: list[str], word: str) -> None:
    with pytest.raises(UsageError) as error:
        read_settings(argv)
    assert word in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"modle = 1\n", "modle"),
        (b"max-num-seqs = 1\n", "max_num_seqs"),
        (b"mode = \n", "TOML"),
        (b"mode = 3\n", "mode"),
        (b"\xff\xfe", "TOML"),
    ],
)
def test_a_bad_file_is_one_line(text: bytes, word: str, tmp_path: Path) -> None:
    (tmp_path / "minedraft.toml").write_bytes(text)
    with pytest.raises(UsageError, match=word):
        read_settings([])


def test_the_producers_table_of_the_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "minedraft.toml").write_text(
        'mode = "sd"\n[submit]\nttl = "7d"\nmodel = "other"\n[submit.defaults]\nn = 2\n'
    )
    settings = read_settings([])
    assert (settings.mode, settings.model) == ("sd", None)


def test_metrics_are_for_this_machine_alone_unless_asked() -> None:
    assert read_settings([]).metrics_host == "127.0.0.1"
