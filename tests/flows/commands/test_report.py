"""`sightline report` of a finished run reads its folder alone."""

import json
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from flows.commands.run import carry_out_report
from flows.request import RunRequest
from rl_core.evaluation.items import write_items
from rl_core.evaluation.result import read_evaluation
from rl_core.run_directory import RunDirectory
from tasks.cache.stages import stage_digests
from tasks.report import summarise_run
from tasks.results.run_facts import RunFacts
from tests.tasks.finished_run import finish_run, finish_stage

ROOT = Path(__file__).parents[3]


@pytest.fixture
def reported(tmp_path: Path) -> RunDirectory:
    run = finish_run(tmp_path / "runs")
    (run.merged_model / "config.json").write_text(json.dumps({"architectures": ["Qwen3ForCausalLM"]}))
    run.report.write_text("<html>")
    run.summary.write_text(json.dumps(summarise_run(RunFacts(run))))
    digest = stage_digests(RunFacts(run).config)["report"]
    finish_stage(run, "report", {}, run.report, run.summary, digest=digest)
    return run


@pytest.fixture
def flows_called(monkeypatch: pytest.MonkeyPatch) -> list[RunRequest]:
    """The requests that went on to a flow."""
    requests: list[RunRequest] = []
    monkeypatch.setattr("flows.commands.run.carry_out", lambda flow, request, console: requests.append(request) or 7)
    return requests


def reported_of(target: str, runs_dir: Path) -> tuple[int, str]:
    text = StringIO()
    request = RunRequest(config=target, runs_dir=str(runs_dir))
    return carry_out_report(request, Console(file=text, width=200)), text.getvalue()


def test_a_finished_run_is_shown_without_a_flow_by_folder_and_by_name(
    reported: RunDirectory, flows_called: list[RunRequest]
) -> None:
    for target in (str(reported.root), reported.name):
        code, text = reported_of(target, reported.root.parent)
        assert code == 0 and not flows_called
        assert "report: finished before" in text and "Held-out accuracy" in text and str(reported.report) in text


def test_commands_that_only_look_load_neither_prefect_nor_torch_nor_mlflow(reported: RunDirectory) -> None:
    """Each of them takes seconds of every call."""
    write_items(reported.validation(2), read_evaluation(reported.evaluation("trained"))["greedy"])
    name, runs_dir = reported.name, ["--runs-dir", str(reported.root.parent)]
    commands = [
        ["runs"],
        ["plan", "configs/quickstart.yaml"],
        ["reproduce", "qwen2_5_vl_7b_geo3k_dapo", "--dry-run"],
        ["show", name, "--validation"],
        ["report", name],
    ]
    heavy = {"prefect", "torch", "mlflow", "vllm", "transformers", "matplotlib", "datasets"}
    code = (
        "import sys; from flows.cli import app\n"
        f"for command in {commands!r}:\n"
        f"    try: app([*command, *{runs_dir!r}])\n"
        "    except SystemExit as end: assert not end.code, command\n"
        f"    print(*command, *({heavy!r} & sys.modules.keys()), file=sys.stderr)"
    )
    called = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert called.returncode == 0, called.stdout + called.stderr
    assert called.stderr.splitlines() == [" ".join(command) for command in commands]


@pytest.mark.parametrize("damage", ["summary.json", "stages/report.json"])
def test_a_report_that_does_not_stand_is_made(
    reported: RunDirectory, flows_called: list[RunRequest], damage: str
) -> None:
    (reported.root / damage).write_text("{}")
    assert reported_of(str(reported.root), reported.root.parent)[0] == 7
    assert len(flows_called) == 1


def test_a_finished_run_is_shown_even_without_its_merged_model(
    reported: RunDirectory, flows_called: list[RunRequest]
) -> None:
    assert "With vLLM" in reported_of(reported.name, reported.root.parent)[1]
    shutil.rmtree(reported.merged_model)
    code, text = reported_of(reported.name, reported.root.parent)
    assert code == 0 and "Held-out accuracy" in text and "With vLLM" not in text
