"""What an earlier version has left is shown, compared and evaluated as before."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from flows.cli import app
from rl_core.config.former_algorithm import digested
from rl_core.config.loading import load_config
from rl_core.run_directory import RunDirectory
from tests.e2e.runs import fingerprint, sightline
from tests.results import differences

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

NEWER_IN_MANIFESTS = {"sha256", "parts", "software", "made_from"}
NEWER_IN_TIMINGS = {"workers", "spans", "generate_peak_gib", "update_peak_gib", "save_peak_gib", "checkpoint_wait_s"}
NEWER_IN_METRICS = {"agreement/log_prob_correlation", "agreement/log_prob_gap_p999"}
NEWER_EVENTS = {"settings", "software-changed", "cluster-machines"}


def without(record: Mapping[str, Any], newer: set[str]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in newer}


def rewrite_lines(path: Path, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Change each line of a log, or leave it out."""
    changed = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in changed if line is not None))


@pytest.fixture
def older(finished: RunDirectory, tmp_path: Path) -> RunDirectory:
    """The finished run without what a run of commit 17ab2b9 did not record yet, and with `algorithm` in its former
    form. Its digests are those of now; a run as old as that has others."""
    run = RunDirectory(tmp_path / "runs" / finished.name)
    shutil.copytree(finished.root, run.root)
    config = yaml.safe_load(run.config.read_text())
    config["algorithm"] = without(digested(config["algorithm"]), {"overlong_filtering"})
    config.pop("cluster", None)
    run.config.write_text(yaml.safe_dump(config, sort_keys=False))
    for manifest in (run.root / "stages").glob("*.json"):
        manifest.write_text(json.dumps(without(json.loads(manifest.read_text()), NEWER_IN_MANIFESTS)))
    rewrite_lines(run.timings, lambda line: without(line, NEWER_IN_TIMINGS))
    rewrite_lines(run.events, lambda line: None if line["kind"] in NEWER_EVENTS else line)
    return run


def test_an_older_run_is_shown_and_compared(older: RunDirectory, finished: RunDirectory, tmp_path: Path) -> None:
    """Its metrics lack some too; its pages say the same as those of the run that it was made of."""
    rewrite_lines(older.metrics, lambda line: without(line, NEWER_IN_METRICS))
    assert "adv_estimator" in older.config.read_text(), "the control: the former form"
    assert load_config(older.config) == load_config(finished.config)
    for options in ((), ("--validation",)):
        shown = [CliRunner().invoke(app, ["show", f"{run.root}", *options]) for run in (older, finished)]
        assert [done.exit_code for done in shown] == [0, 0], shown[0].output
        said = [done.output.replace(f"{run.root}", "") for done, run in zip(shown, (older, finished), strict=True)]
        assert said[0].split() == said[1].split()
    figures = []
    for name, run in (("older", older), ("finished", finished)):
        out = tmp_path / f"{name}.html"
        done = CliRunner().invoke(app, ["compare", f"{run.root}", "--out", f"{out}"])
        assert done.exit_code == 0, done.output
        figures.append(json.loads(out.with_suffix(".json").read_text())["groups"])
    assert figures[0] == figures[1]


@pytest.mark.slow
def test_the_stages_of_an_older_run_are_recognised_when_it_is_evaluated(
    older: RunDirectory, finished: RunDirectory, new_home: Path
) -> None:
    output = sightline("evaluate", f"{older.root}", "--runs-dir", f"{older.root.parent}", home=new_home).stdout
    stages = [line for line in output.splitlines() if line.startswith("✓")]
    assert any("evaluate-trained" in line for line in stages)
    assert all("finished before" in line for line in stages), output
    assert differences(fingerprint(finished), fingerprint(older)) == []
