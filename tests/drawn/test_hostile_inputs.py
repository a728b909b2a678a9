"""Whatever is written into a configuration, beside it or on a command line: `plan` ends soon, with a sentence that
names what is wrong and where, or with a plan."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from huggingface_hub import constants
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import rl_core.planning.meta_model  # noqa: F401 - with torch loaded here, no other process builds the models
from flows.cli import app
from flows.printing import cause_of
from tests.drawn.hostile import KEYS, PATHS, overrides, values, write_oddities

SECONDS = 20
LONGEST = 40_000

# Twenty-five of every kind in `make test`, a hundred by the profile of `make test-slow`.
each_kind = settings(
    max_examples=settings.default.max_examples // 2 if settings.default else 25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)

PATH_KEYS = {
    "data.prompt_template": "'{}'",
    "data.override_chat_template": "'{}'",
    "data.train": "{{type: local, path: '{}'}}",
    "data.validation": "{{type: local, path: '{}', format: parquet}}",
    "data.train.media_dir": "'{}'",
    "cold_start.source": "{{type: local, path: '{}', media_dir: '{}'}}",
    "model.source": "{{type: pretrained, path: '{}'}}",
    "reward.function": "'{}:score'",
    "tracking.mlflow_uri": "'sqlite:///{}'",
}


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_oddities(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)  # no name is looked up
    return tmp_path


@contextmanager
def soon() -> Iterator[None]:
    """Fails what takes longer."""

    def too_long(*_: object) -> NoReturn:
        raise AssertionError(f"it takes longer than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def plan_message(*arguments: str, names: tuple[str, ...] = ()) -> str:
    """What `sightline plan ARGUMENTS` prints in the end: nothing for a plan without a problem.

    Args:
        names: Other names than a key of the configuration that a sentence may use.
    """
    with soon():
        done = CliRunner().invoke(app, ["plan", *arguments, "--runs-dir", "runs"])
    error = done.exception
    if error is not None and not isinstance(error, SystemExit):
        assert isinstance(error, ValueError | OSError), f"a traceback: {error!r}"
        message = cause_of(error)
    else:
        message = "\n".join(line for line in done.output.splitlines() if line.startswith("problem "))
        assert bool(message) == (done.exit_code == 1), done.output
    check_sentence(message, names)
    return message


def check_sentence(message: str, names: tuple[str, ...]) -> None:
    if not message:
        return
    assert len(message) < LONGEST, len(message)
    assert "Errno" not in message and "Traceback" not in message, message
    assert message.replace("\n", "").isprintable(), ascii(message)
    known = {*KEYS, *names, "override", "disk of", "memory of"}
    assert any(name in message for name in known), message
    assert len(message.split()) >= 4, message


@each_kind
@given(text=values())
def test_a_value_in_a_file(text: str) -> None:
    Path("own.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")
    plan_message("own.yaml", names=("own.yaml",))


@each_kind
@given(changes=st.lists(overrides(), min_size=1, max_size=3))
def test_overrides(changes: list[str]) -> None:
    plan_message("base.yaml", *changes)


@each_kind
@given(key=st.sampled_from(sorted(PATH_KEYS)), path=st.sampled_from(PATHS))
@example(key="data.train", path="rows.jsonl")
def test_a_path(key: str, path: str) -> None:
    message = plan_message(
        "base.yaml", f"{key}={PATH_KEYS[key].replace('{}', path).replace('{{', '{').replace('}}', '}')}"
    )
    assert not message or key.split(".")[0] in message
    is_odd = path not in (".", "rows.jsonl", "prompt.jinja", "a b [c] *?", "reward.py")
    if is_odd and key in ("data.prompt_template", "reward.function", "data.train", "cold_start.source"):
        assert key in message, "the control: such a path cannot be used"


@each_kind
@given(path=st.sampled_from(PATHS) | st.text(min_size=1, max_size=20))
def test_a_config(path: str) -> None:
    if not path.startswith("-") and "\0" not in path:
        plan_message(path, names=("config file", "no run", path[:40]))


def test_some_drawn_inputs_are_refused_and_some_taken() -> None:
    """The control: of one value each that fits and that does not."""
    assert plan_message("base.yaml", "seed=3") == ""
    assert re.match(r"base\.yaml: 1 problem", plan_message("base.yaml", "seed=-3", names=("base.yaml",)))
