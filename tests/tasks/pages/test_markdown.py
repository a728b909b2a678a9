"""Pages say what their stage made, and show what a model said as text."""

import math
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rl_core.digests import FileRecord
from rl_core.evaluation.items import write_items
from rl_core.evaluation.result import read_evaluation
from rl_core.records.metrics_log import RunLogs
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLock
from tasks.cache.manifests import StageManifest
from tasks.pages.markdown import links_page, sparkline, stage_page, steps_page, validation_page
from tests.tasks.finished_run import finish_run


def manifest(stage: str, result: dict, **more: object) -> StageManifest:
    return StageManifest(
        stage=stage,
        digest="abc",
        outputs={"a": FileRecord(sha256="0", size=1_500_000)},
        result=result,
        seconds=61.0,
        finished_at="2026-01-01T00:00:00+00:00",
        **more,
    )


def test_a_stage_is_its_facts() -> None:
    page = stage_page(manifest("merge", {"step": 6, "proof": {"largest": 1.25e-7}, "text": "a\nb"}))
    for line in (
        "| wall time | 1 min 01 s |",
        "| files | 1 (1.5 MB) |",
        "| step | 6 |",
        "| proof.largest | 1.25e-07 |",
    ):
        assert line in page
    assert "made by this run" in page and "a\nb" not in page


def test_a_stage_of_another_run_says_so() -> None:
    assert "| origin | taken over from `other` |" in stage_page(manifest("merge", {}, reused_from="other"))


def test_an_evaluation_is_a_table_of_its_passes() -> None:
    result = {
        "accuracy": 0.5,
        "ci95": [0.4, 0.625],
        "n": 10,
        "failed_rewards": 0,
        "truncation_rate": 0.1,
        "parse_failure_rate": None,
        "mean_length": 12.5,
        "categories": [{"column": "data_source", "value": "charts", "n": 4, "accuracy": 0.25}],
    }
    page = stage_page(manifest("evaluate-base", {"greedy": result, "sampled": result | {"failed_rewards": 2}}))
    assert "| greedy | 50.0% | 40.0% to 62.5% | 10 | 10.0% |  | 12.5 |" in page
    assert "| data_source | charts | greedy | 25.0% | 4 |" in page
    assert "| sampled | 50.0% | 40.0% to 62.5% | 10 (2 not scored) | " in page


def test_held_out_prompts_are_shown_with_what_was_answered_to_them_after_each_validation(tmp_path: Path) -> None:
    run = finish_run(tmp_path, base="----", trained="+---")
    base = read_evaluation(run.evaluation("base"))["greedy"]
    odd = "<answer>2</answer>\n**5** | [6](x) & so on"
    unscored = replace(base[0], response=odd, is_right=None, components={}, error="too slow")
    write_items(run.validation(0), [unscored, *base[1:]])
    write_items(run.validation(2), read_evaluation(run.evaluation("trained"))["greedy"])
    page = validation_page(run)
    assert page.startswith("# Held-out prompts, validated after step 2\n")
    assert page.count("![image](data:image/png;base64,") == page.count("How many?") == 3
    shown = r"&lt;answer>2&lt;/answer><br>\*\*5\*\* \| \[6\](x) &amp; so on"
    assert f"| 0 | {shown} | too slow | not scored |" in page, "what a model said is text"
    assert r"| 2 | &lt;answer>3&lt;/answer> | 1 | right |" in page
    assert f"`sightline show {run.name} --validation --step 2` shows the answers to all 4 prompts." in page


def test_a_conversation_is_shown_with_its_results_and_pictures(tmp_path: Path) -> None:
    run = finish_run(tmp_path)
    item = read_evaluation(run.evaluation("base"))["greedy"][0]
    reply = {"role": "assistant", "content": "I | look"}
    tool_result = {
        "role": "tool",
        "calls": [{"name": "zoom", "result": "a *cat*"}],
        "image_uids": list(item.image_uids),
    }
    write_items(
        run.validation(0), [replace(item, turns=(reply, tool_result, {"role": "assistant", "content": item.response}))]
    )
    page = validation_page(run)
    assert r"| 0 | I \| look<br>→ a \*cat\*<br>![image](data:image/png;base64," in page
    assert page.count("![image]") == 2


def test_the_steps_are_followed_by_what_each_of_several_workers_did(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    times = {"generate_s": 1.0, "update_s": 2.0, "sync_s": 0.0, "save_s": 0.0, "load_s": 0.0, "idle_s": 1.0}
    columns = {
        "host": ["here"],
        "device": ["CPU"],
        "total_s": [4.0],
        **{name: [value] for name, value in times.items()},
    }
    with RunLock(run.lock):
        logs = RunLogs(run)
        logs.log_timing(1, {"total_s": 4.0}, workers=columns)
        logs.log_step(1, {"reward/overall": 0.5})
        assert "Workers" not in steps_page(run)
        logs.log_timing(2, {"total_s": 4.0}, workers={name: values * 2 for name, values in columns.items()})
    page = steps_page(run)
    assert "| worker | device | generating | training | weights | idle | memory |" in page
    assert page.endswith("| 1 | CPU, here | 25% | 50% | 0% | 25% |  |\n")


def test_steps_that_taught_nothing_are_named_above_the_steps(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    with RunLock(run.lock):
        logs = RunLogs(run)
        for step in (4, 9):
            logs.log_event("no-signal", step=step, steps=2, why="the reward is 0 for every response")
    assert "# Steps\n\n**From step 3 on nothing was learned: the reward is 0 for every response.**" in steps_page(run)


def test_the_steps_have_small_curves_from_the_first_step_to_the_newest(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    with RunLock(run.lock):
        for step, reward in enumerate((0.0, 0.5, 1.0), start=1):
            RunLogs(run).log_step(step, {"reward/overall": reward, "actor/entropy": 2.0})
    page = steps_page(run)
    assert "reward             ▁▅█ " in page and "0 → 1\n" in page
    assert "entropy            ▁▁▁ " in page and "held-out" not in page
    assert page.index("▁▅█") < page.index("| step |")


@given(st.lists(st.floats(-1e300, 1e300) | st.sampled_from([math.nan, math.inf, -math.inf]), max_size=40))
def test_a_curve_has_a_mark_for_each_value_whatever_it_is(values: list[float]) -> None:
    drawn = sparkline(values)
    assert len(drawn) == len(values)
    known = [(value, mark) for value, mark in zip(values, drawn, strict=True) if math.isfinite(value)]
    assert [mark for _, mark in sorted(known)] == sorted(mark for _, mark in known), "a higher value has no lower mark"


def test_links_name_what_there_is() -> None:
    run = RunDirectory(Path("runs/x"))
    page = links_page(run, mlflow={"this run": "http://m"}, resume="sightline run --resume x")
    assert "| MLflow, this run | [http://m](http://m) |" in page and "not shown there" not in page
    assert "| MLflow | not shown there |" in links_page(run, mlflow={}, resume="sightline run --resume x")
