"""The cleaning as a flow, and what it leaves to sets of baselines."""

from pathlib import Path

import pytest

from flows.clean import clean
from flows.reproducing import BaselineSet, needed_runs
from rl_core.files import atomic_write_json
from tests.flows.artifacts import artifacts_of
from tests.flows.test_reproduce import BASELINE
from tests.tasks.housekeeping.runs import failed, finished, readable


@pytest.mark.usefixtures("prefect_server")
def test_the_flow_shows_and_removes_and_keeps_a_page(tmp_path: Path) -> None:
    run = readable(failed(tmp_path, "broken"), finished(tmp_path))
    shown = clean(failed=True, runs_dir=str(tmp_path), return_state=True)
    assert shown.result()["removable"] == ["broken"] and run.config.is_file()
    done = clean(failed=True, remove=True, runs_dir=str(tmp_path), return_state=True)
    assert done.result()["removed"] == ["broken"] and not run.root.exists()
    (page,) = artifacts_of(done.state_details.flow_run_id)
    assert "| `broken` | failed, changed just now |" in page.data


@pytest.mark.usefixtures("at_the_root")
def test_runs_of_a_set_stay_until_it_has_its_page(tmp_path: Path) -> None:
    baseline_set = BaselineSet(
        baselines=[BASELINE], overrides=["tracking.mlflow_uri=null"], tag="t1", runs_dir=str(tmp_path)
    )
    baseline_set.save()
    (plan,) = baseline_set.planned()
    reason = f"the set of baselines {baseline_set.name} is not finished and needs it"
    assert needed_runs(str(tmp_path)) == {plan.resolved.run.name: reason}
    atomic_write_json(baseline_set.folder / "summary.json", {})
    assert needed_runs(str(tmp_path)) == {}


def test_a_set_whose_baselines_are_gone_needs_nothing(tmp_path: Path) -> None:
    BaselineSet(baselines=["gone"], runs_dir=str(tmp_path)).save()
    (tmp_path / "reproductions" / "torn").mkdir()
    (tmp_path / "reproductions" / "torn" / "set.json").write_text("{")
    assert needed_runs(str(tmp_path)) == {}
