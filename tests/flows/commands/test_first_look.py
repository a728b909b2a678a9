"""A mistake in a config is named before Prefect is loaded, which takes many seconds, and leaves no run behind."""

import json
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from huggingface_hub import constants
from rich.console import Console

from flows.commands.run import carry_out
from flows.request import RunRequest
from rl_core.config.loading import ConfigError
from rl_core.problem import PlanError
from tests.rl_core.data.samples import png_bytes
from tests.servers import answering

SUMS = {"train": range(16), "held": range(16, 20)}


@pytest.fixture
def asked(tmp_path: Path) -> Callable[..., RunRequest]:
    """`asked(*overrides)`: a run of a config that lies beside its rows."""
    for name, numbers in SUMS.items():
        rows = [{"problem": f"{n} plus 1?", "answer": f"{n + 1}", "photo": "a.png"} for n in numbers]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "a.png").write_bytes(png_bytes())
    (tmp_path / "mine.py").write_text("raise SystemExit('no code of a person is run')\ndef score(sample): ...\n")
    (tmp_path / "open.jinja").write_text("{{ content }")
    config = tmp_path / "config.yaml"
    config.write_text(
        "experiment: sums\n"
        "data:\n"
        "  train: {type: local, path: train.jsonl}\n"
        "  validation: {type: local, path: held.jsonl}\n"
        "  rollout_batch_size: 4\n"
        "model: {source: {type: tiny, family: qwen2_5, num_layers: 1}}\n"
        "reward: {function: math}\n"
        "actor: {global_batch_size: 4}\n"
        "trainer: {max_steps: 1}\n"
        "tracking: {mlflow_uri: null}\n"
    )
    return lambda *overrides: RunRequest(config=str(config), overrides=overrides, runs_dir=str(tmp_path / "runs"))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.train.path=trian.jsonl", "data.train.path: there is no file or folder"),
        ("data.validation.path=nowhere", "data.validation.path: there is no file or folder"),
        ("data.train.columns.prompt_key=problm", "did you mean 'problem'?"),
        ("data.train.columns.image_key=[photo, foto]", "has no column 'foto'"),
        ("data.prompt_template=gone.jinja", "data.prompt_template: there is no file"),
        ("data.prompt_template=open.jinja", "data.prompt_template: "),
        ("reward.function=mine.py:scroe", "did you mean `score`?"),
        ("reward.function=yours.py:score", "reward.function: there is no file"),
        ("actor.global_batch_size=3", "a step of 4 prompts does not split into optimizer steps of 3"),
        ("model.source={type: pretrained, path: ./gone}", "model.source: there is no folder ./gone"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("flow", ["baseline", "prepare"])
def test_a_mistake_is_named_with_its_key(
    asked: Callable[..., RunRequest], tmp_path: Path, override: str, words: str, flow: str
) -> None:
    with pytest.raises(PlanError) as refused:
        carry_out(flow, asked(override), Console(file=StringIO()))
    assert words in str(refused.value)
    assert not (tmp_path / "runs").exists()


def test_all_mistakes_are_named_at_once(asked: Callable[..., RunRequest]) -> None:
    with pytest.raises(PlanError) as refused:
        carry_out("baseline", asked("data.train.path=gone", "actor.global_batch_size=3"), Console(file=StringIO()))
    assert [problem.where for problem in refused.value.problems] == ["data.rollout_batch_size", "data.train.path"]


def test_a_key_with_a_slip_is_refused_first(asked: Callable[..., RunRequest]) -> None:
    with pytest.raises(ConfigError, match="did you mean `max_steps`"):
        carry_out("baseline", asked("trainer.max_stepps=3", "data.train.path=gone"), Console(file=StringIO()))


FROM_THE_HUB = (
    "data.train={type: hub, name: owner/rows@train}",
    "data.validation={type: mixture, sources: {a: {type: hub, name: owner/held@test}}}",
    "model.source={type: pretrained, path: owner/model}",
)
NAMED = ["model.source.path", "data.train.name", "data.validation.sources.a.name"]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """`hub(address)`: where it is, with an empty cache."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return lambda address: monkeypatch.setattr(constants, "ENDPOINT", address)


def refused(request: RunRequest) -> list[str]:
    """The keys of what `run` names at once."""
    with pytest.raises(PlanError) as error:
        carry_out("baseline", request, Console(file=StringIO()))
    return [problem.where for problem in error.value.problems]


def test_the_hub_is_asked_for_a_name_once_and_nothing_is_fetched(
    asked: Callable[..., RunRequest], hub: Callable[[str], None]
) -> None:
    paths = []

    def answer(path: str, _: bytes) -> tuple[int, object]:
        paths.append(path.partition("?")[0])
        return (404, {}) if "held" in path else (200, {"id": "owner/rows", "sha": "0" * 40, "siblings": []})

    with answering(answer) as address:
        hub(address)
        assert refused(asked(*FROM_THE_HUB)) == NAMED[-1:]
    asked_of = [f"/api/datasets/owner/{name}" for name in ("held", "rows")]
    assert sorted(paths) == [*asked_of, "/api/models/owner/model"]


@pytest.mark.parametrize("arguments", [["data.train.path=gone"], ["data.train.path=gone", "--seeds", "1-2"]])
def test_neither_prefect_nor_torch_is_loaded_for_it(
    asked: Callable[..., RunRequest], tmp_path: Path, arguments: list[str]
) -> None:
    code = (
        "import sys\nfrom flows.cli import main\n"
        "try: main()\n"
        "finally: print(*sorted({'prefect', 'torch', 'scipy', 'mlflow'} & sys.modules.keys()), end='')"
    )
    command = ["sightline", "run", asked().config, *arguments, "--runs-dir", str(tmp_path / "runs")]
    done = subprocess.run(
        [sys.executable, "-c", code, *command[1:]], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "data.train.path: there is no file or folder" in done.stderr
