"""`sightline show` prints a step's rollouts or a validation's answers, also of a run that still trains."""

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from flows.commands.show import newest_step, print_rollouts, print_validation
from flows.request import find_run
from rl_core.data.images import ImageStore, ImageStoreWriter
from rl_core.data.prepared import IMAGES_FILE
from rl_core.evaluation.items import EvaluationItem, write_items
from rl_core.records.rollout_files import write_rollouts
from rl_core.run_directory import RunDirectory
from rl_core.types import Group, Insertion, Rollout, Score, ToolCall, TrainGroup, TrainSample
from tests.rl_core.builders import make_prompt, make_rollout
from tests.rl_core.data.samples import png_bytes
from tests.rl_core.evaluation.builders import make_items


def rollout(index: int, text: str, *, uid: str = "p1", version: int = 3) -> Rollout:
    made = make_rollout(uid, index, length=2, version=version)
    return replace(made, text=text, finish_reason="stop" if index == 0 else "length")


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run with one step: one prompt, three rollouts, the last without a score."""
    run = RunDirectory(tmp_path / "runs" / "counted")
    run.data.mkdir(parents=True)
    run.config.write_text("experiment: counted\n")
    with ImageStoreWriter(run.data / IMAGES_FILE) as images:
        uid = images.add(png_bytes((8, 8)))
    shown = {"question": "<image>How many?", "text": "user: <|image_pad|>How many? [1, 2]", "image_uids": (uid,)}
    prompt = replace(make_prompt("p1"), answer="3", **shown)
    rollouts = [rollout(0, "<answer>3</answer>"), rollout(1, "[bold]?"), rollout(2, "")]
    scores = {
        ("p1", 0): Score(components={"overall": 1.0, "accuracy": 1.0}),
        ("p1", 1): Score(components={"overall": 0.0, "accuracy": 0.0}),
        ("p1", 2): Score(components={}, error="took more than 10 s"),
    }
    samples = [
        TrainSample(rollout=one, advantages=np.full(2, value, np.float32), old_log_probs=one.log_probs)
        for one, value in zip(rollouts[:2], (0.5, -0.5), strict=True)
    ]
    trained = [TrainGroup(prompt=prompt, samples=samples)]
    write_rollouts(run.rollouts(4), [Group(prompt=prompt, rollouts=rollouts)], scores, trained, step=4)
    return run


def shown(run: RunDirectory, **options) -> str:
    text = StringIO()
    print_rollouts(run, Console(file=text, width=200), **({"step": None, "prompts": 3} | options))
    return text.getvalue()


def test_prompt_answer_responses_rewards_and_advantages_are_shown(run: RunDirectory) -> None:
    text = shown(run)
    for part in (
        "counted, step 4: 3 rollouts",
        "How many? [1, 2]",
        "answer  3",
        "<answer>3</answer>",
        "+0.500",
        "1.000",
    ):
        assert part in text, part


@pytest.mark.parametrize("text", [r"so \[x = 5\] done", "a backslash at the end \\", ":smile: [red]"])
def test_text_that_looks_like_markup_is_shown_as_it_is(run: RunDirectory, text: str) -> None:
    prompt = replace(make_prompt("p1"), text=f"Q {text}", answer=text)
    group = Group(prompt=prompt, rollouts=[rollout(0, text), rollout(1, text)])
    scores = {("p1", 0): Score(components={"overall": 1.0, text: 0.5}), ("p1", 1): Score(components={}, error=text)}
    write_rollouts(run.rollouts(6), [group], scores, [], step=6)
    printed = shown(run, step=6)
    assert f"Q {text}" in printed and f"answer  {text}" in printed
    assert f"{text} …(cut)" in printed, "the response"
    assert printed.count(text) == 6, "the prompt, the answer, two responses, a part's name, an error"
    assert f"{text} 0.5" in printed


def test_a_group_that_was_kept_from_the_step_before_says_so(run: RunDirectory) -> None:
    assert "from the step before" not in shown(run)
    groups = [
        Group(prompt=make_prompt(uid), rollouts=[rollout(0, "1", uid=uid, version=version)])
        for uid, version in (("drawn", 3), ("older", 2))
    ]
    scores = {(group.prompt.uid, 0): Score(components={"overall": 1.0}) for group in groups}
    write_rollouts(run.rollouts(5), groups, scores, [], step=5)
    assert "from the step before (policy version 2)" in shown(run)
    assert "from the step before" not in shown(run, prompts=1), "the group of this step"


def test_images_lie_where_the_path_says(run: RunDirectory) -> None:
    line = next(line for line in shown(run).splitlines() if line.startswith("image"))
    assert Image.open(line.removeprefix("image").strip()).size == (8, 8)


def test_a_conversation_is_shown_with_its_results_images_and_end(run: RunDirectory) -> None:
    store = ImageStore(run.data / IMAGES_FILE)
    made = store.add_made(png_bytes((9, 9)))
    call = ToolCall(name="look", arguments="{}", result=f"[image {made}] a cat", outcome="answered")
    ids = np.array([1], np.int32)
    put = Insertion(after=1, token_ids=ids, engine_token_ids=ids, turn="I look", image_uids=(made,), calls=(call,))
    reply = replace(rollout(0, "A cat."), insertions=(put,), environment={"found": 1.0, "moves": 2.0})
    scores = {reply.key: Score(components={"overall": 1.0})}
    write_rollouts(run.rollouts(7), [Group(prompt=make_prompt("p1"), rollouts=[reply])], scores, [], step=7)
    text = shown(run)
    lines = [
        "I look",
        f"-> [image {made}] a cat",
        f"-> image {run.root}/images/{made}.png",
        "A cat.",
        "=> found 1, moves 2",
    ]
    places = [text.index(line) for line in lines]
    assert places == sorted(places)
    assert Image.open(run.root / "images" / f"{made}.png").size == (9, 9)


def test_a_missing_step_and_a_run_without_steps_are_named(run: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no rollouts of step 9; its newest step is 4"):
        shown(run, step=9)
    with pytest.raises(ValueError, match="has no rollouts yet"):
        newest_step(RunDirectory(tmp_path / "empty"))


def test_a_run_is_found_by_folder_and_by_name(run: RunDirectory) -> None:
    runs_dir = str(run.root.parent)
    assert find_run(str(run.root), "elsewhere") == run
    assert find_run("counted", runs_dir) == run
    with pytest.raises(ValueError, match=r"no run other; .* has counted"):
        find_run("other", runs_dir)


def shown_validation(run: RunDirectory, **options) -> str:
    text = StringIO()
    print_validation(run, Console(file=text, width=200), **({"step": None, "prompts": 3} | options))
    return text.getvalue()


@pytest.fixture
def validated(run: RunDirectory) -> RunDirectory:
    """Answers to four prompts before training and after step 4: two are right, not the same ones."""
    write_items(run.validation(0), without_images(make_items("++--")))
    write_items(run.validation(4), without_images(make_items("+-+-", response="[/b] \\[x\\]", parsed=None)))
    return run


def without_images(items: Sequence[EvaluationItem]) -> list[EvaluationItem]:
    return [replace(item, image_uids=()) for item in items]


def test_a_validation_shows_its_figures_and_what_changed_since_the_one_before(validated: RunDirectory) -> None:
    assert "validation after step 0: 2 of 4 answers are right (50.0%)\n" in shown_validation(validated, step=0)
    newest = shown_validation(validated)
    assert "validation after step 4: 2 of 4 answers are right (50.0%); since step 0: 1 better, 1 worse" in newest
    assert newest.count("How many?") == 3 and "1 more prompts: --prompts 4" in newest
    assert newest.count(r"[/b] \[x\]") == 3, "what a model said is shown as it is"
    assert [newest.count(word) for word in ("│ right", "│ wrong", "accuracy 1, format 1")] == [2, 1, 3]


def test_an_answer_without_a_score_says_why_and_is_not_wrong(run: RunDirectory) -> None:
    items = without_images(make_items("+?"))
    write_items(run.validation(2), [replace(item, finish_reason="length") for item in items])
    text = shown_validation(run)
    assert "1 of 1 answers are right (100.0%), 1 are not scored" in text
    assert "HTTP 429" in text and "…(cut)" in text and "│ not scored" in text and "wrong" not in text


def test_a_held_out_conversation_is_shown_with_its_results(run: RunDirectory) -> None:
    (item,) = without_images(make_items("+"))
    reply = {"role": "assistant", "content": "I ask"}
    tool_result = {"role": "tool", "calls": [{"name": "look", "result": "a cat"}], "image_uids": []}
    write_items(
        run.validation(3), [replace(item, turns=(reply, tool_result, {"role": "assistant", "content": "A cat."}))]
    )
    text = shown_validation(run)
    assert text.index("I ask") < text.index("-> a cat") < text.index(item.response)


def test_a_step_without_a_validation_is_named(run: RunDirectory, validated: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no validation after step 3, but after 0, 4$"):
        shown_validation(validated, step=3)
    with pytest.raises(ValueError, match=r"no validation yet; trainer\.val_freq"):
        shown_validation(RunDirectory(tmp_path / "empty"))
