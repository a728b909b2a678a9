"""Everything that is wrong is named, and all at once."""

import json
from pathlib import Path

import pytest

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.problem import Problem
from rl_core.run_directory import RunDirectory
from tasks.planning.trials import answer_problems, data_problems, find_problems, hidden_options, reward_problems
from tests.rl_core.data.samples import png_bytes

pytestmark = pytest.mark.usefixtures("at_the_root")
GOOD = {"problem": "two?", "images": [], "answer": "1"}
BAD = {"problem": "<image> <image> two?", "images": [], "answer": "1"}


def small(*overrides: str) -> RunConfig:
    return load_config(Path("tests/e2e/configs/small.yaml"), overrides)


def training_rows(tmp_path: Path, *rows: dict) -> str:
    """The override that trains on these rows."""
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"data.train={{type: local, path: {path}}}"


def reward_that(tmp_path: Path, body: str) -> str:
    """The override that judges with this function body."""
    path = tmp_path / "reward.py"
    path.write_text(f"import time\n\n\ndef score(sample):\n    {body}\n")
    return f"reward.function={path}:score"


def text_of(problems: list[Problem]) -> str:
    return "\n".join(map(str, problems))


def test_rows_that_are_sorted_by_their_answers_are_tried_with_a_later_one(tmp_path: Path) -> None:
    answers = [{"problem": f"{number}?", "images": [], "answer": str(number // 50)} for number in range(100)]
    alike = training_rows(tmp_path, *answers[:50]).replace("train", "validation")
    (problem,) = reward_problems(small(training_rows(tmp_path, *answers[:50]), alike))
    assert not problem.fatal
    assert "all 16 rows that reward 'count' was tried on have the answer '0'" in problem.what
    assert reward_problems(small(training_rows(tmp_path, *answers), alike)) == []


def test_a_reward_that_looks_is_tried_with_the_pictures(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png_bytes((300, 100)))
    (tmp_path / "b.png").write_bytes(b"no picture")
    rows = [{"problem": "<image> how wide?", "images": name, "answer": "300"} for name in ("a.png", "b.png")]
    looks = reward_that(
        tmp_path,
        "(image,), (sizes,) = sample.images(), sample.image_sizes; assert image.size == sizes.shown == (122, 40); "
        "return {'overall': sample.response == str(sizes.original[0]), 'accuracy': sample.response == '300'}",
    )
    data = [training_rows(tmp_path, *rows).replace("train", side) for side in ("train", "validation")]
    found = reward_problems(small(*data, looks, "data.max_pixels=5000"))
    assert not any(problem.fatal or "is right" in problem.what for problem in found), text_of(found)


@pytest.mark.parametrize(
    ("answer", "reward", "words"),
    [
        ("3+2=5\n#### 5", "math", "holds the short answer '5'"),
        ("3+2=5\n#### 5", "r1v", "holds the short answer '5'"),
        ({"style": "rule", "ground_truth": "5"}, "math", "is JSON"),
        ("the left one of the two red circles", "math", "is a sentence"),
        ("<answer> 5 </answer>", "geoqa", ""),
        ("$\\boxed{5}$", "math", ""),
        ("B. the left one of the two red circles", "choice", ""),
        ("5", "math", ""),
    ],
)
def test_answers_that_no_response_gives_are_known_before_the_reward_is_tried(
    tmp_path: Path, answer: object, reward: str, words: str
) -> None:
    config = small(training_rows(tmp_path, GOOD | {"answer": answer}), f"reward.function={reward}")
    problems = answer_problems(config)
    assert [problem.fatal for problem in problems] == ([False] if words else [])
    assert words in text_of(problems)


def test_a_cold_start_on_whole_responses_says_nothing_of_the_form_of_answers(tmp_path: Path) -> None:
    """Its rows of their own are imitated as they are, and the default template would make a wrong response of a row."""
    rows = training_rows(tmp_path, GOOD | {"problem": "<image> two?", "images": ["a.png"]})
    other = "cold_start.source={type: counting, size: 8, scene_seed: 3}"
    plain = 'cold_start.target_template="{{ answer }}"'
    assert reward_problems(small(rows, other, plain)) == []
    (warning,) = reward_problems(small(rows, plain, "cold_start.source=null"))
    assert "calls the true answer wrong" in str(warning)


def test_every_source_that_is_judged_is_tried(tmp_path: Path) -> None:
    (tmp_path / "words.jsonl").write_text(json.dumps({"problem": "?", "answer": "many"}) + "\n")
    words = f"{{type: local, path: {tmp_path}/words.jsonl}}"
    mixture = f"{{type: mixture, sources: {{words: {words}, scenes: {{type: counting, size: 99, scene_seed: 5}}}}}}"
    (problem,) = reward_problems(small(f"data.train={mixture}"))
    assert "the ground truth of row 8: ValueError: the ground truth 'many' is not a whole number" in problem.what
    (problem,) = reward_problems(small(f"data.validation={words}"))
    assert "'many' is not a whole number" in problem.what


def test_config_reward_and_data_are_named_together(tmp_path: Path) -> None:
    config = small(
        "actor.global_batch_size=3",
        reward_that(tmp_path, "raise RuntimeError('no idea')"),
        training_rows(tmp_path, GOOD, BAD),
    )
    problems = find_problems(config, RunDirectory(tmp_path / "run"))
    message = text_of(problems)
    for part in ("actor.global_batch_size", "no idea", "row 1 (rows.jsonl line 2), column 'problem'"):
        assert part in message, message


def own_source(tmp_path: Path, text: str) -> str:
    """The override that trains on rows of a user function."""
    path = tmp_path / f"own_{tmp_path.name}.py"
    path.write_text(text)
    return f"data.train={{type: custom, function: '{path}:rows'}}"


def test_a_data_source_that_fails_is_named_before_anything_starts(tmp_path: Path) -> None:
    config = small(own_source(tmp_path, "def rows():\n    yield {}['problem']\n"), "data.max_prompt_length=32")
    (problem,) = find_problems(config, RunDirectory(tmp_path / "run"))
    assert problem.where == "data.train.function" and "row 0: KeyError: 'problem'" in problem.what
    assert "line 2" in problem.what


def test_good_data_has_no_problem_whatever_its_tiny_tokenizer_makes_of_it() -> None:
    assert data_problems(small("data.max_prompt_length=8")) == []


MINE = {
    "loss": ("loss", "def mine(tokens): return 1 / 0", "ZeroDivisionError: division by zero (mine.py line 1)"),
    "estimator": ("advantage", "def mine(inputs): return []", "for each token: lengths"),
    "filter": ("online_filtering", "def mine(scores): return scores['acuracy'] > 0", "KeyError: 'acuracy' (mine.py"),
}


@pytest.mark.usefixtures("own_imports")
@pytest.mark.parametrize(("section", "text", "words"), MINE.values(), ids=MINE)
def test_a_function_of_the_algorithm_that_cannot_work_is_named_before_anything_starts(
    tmp_path: Path, section: str, text: str, words: str
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    config = small(f"algorithm.{section}={{type: custom, function: {path}:mine}}")
    problems = [problem for problem in find_problems(config, RunDirectory(tmp_path / "run")) if problem.fatal]
    assert [problem.where.startswith(f"algorithm.{section}") for problem in problems] == [True]
    assert words in text_of(problems)


ANIMALS = ["a cat", "a dog", "a cow", "a pig"]
CHOICES: dict[str, dict[str, object]] = {
    "list": {"choices": ANIMALS, "answer": "B"},
    "index": {"options": ANIMALS, "answer": 1},
    "text": {"answer_choices": json.dumps(ANIMALS), "answer": "a dog"},
    "mapping": {"options": dict(zip("ABCD", ANIMALS, strict=True)), "answer": "b"},
    "columns": {**dict(zip("ABCD", ANIMALS, strict=True)), "answer": "B"},
    "arc": {"choices": {"text": ANIMALS, "label": list("ABCD")}, "answer": "B"},
}
ASKED = {"problem": "Which animal barks?"}
NAMED = "data.train.columns.options_key=choices"


@pytest.mark.parametrize("columns", CHOICES.values(), ids=CHOICES)
def test_options_that_no_prompt_shows_are_a_warning_that_the_pages_repeat(
    tmp_path: Path, columns: dict[str, object]
) -> None:
    hidden = training_rows(tmp_path, *([ASKED | columns] * 4))
    (problem,) = hidden_options(small(hidden, "reward.function=choice"), local_only=True)
    assert (problem.fatal, problem.on_pages) == (False, True)
    assert "choose among options, and the prompts of 4 of the first 4 rows do not show these ('a cat', " in problem.what
    shown = {"problem": f"Which one? {', '.join(ANIMALS)}"}
    assert hidden_options(small(training_rows(tmp_path, shown | columns))) == []


@pytest.mark.parametrize(
    ("template", "named", "is_told"),
    [
        ("{{ content }}", False, True),
        ("{{ content }}", True, True),  # named, and not shown
        ("{{ content }} {{ options }}", True, False),
        ("{{ content }} {{ choices | join(', ') }}", False, False),
        ("{{ content }} {{ row.choices }}", False, False),
        ("{{ content }} {{ choices[0] }}", False, True),
    ],
)
def test_options_are_shown_where_the_template_shows_them(
    tmp_path: Path, template: str, named: bool, is_told: bool
) -> None:
    (tmp_path / "mine.jinja").write_text(template)
    rows = training_rows(tmp_path, *([ASKED | CHOICES["list"]] * 4))
    config = small(rows, f"data.prompt_template={tmp_path}/mine.jinja", *([NAMED] if named else []))
    assert bool(hidden_options(config)) == is_told


def test_columns_that_are_no_options_and_sources_that_are_not_local_are_left_alone(tmp_path: Path) -> None:
    for columns in ({"choices": ANIMALS, "answer": "5"}, {"choices": "many", "answer": "A"}, {"answer": "A"}):
        assert hidden_options(small(training_rows(tmp_path, ASKED | columns))) == []
    endless = own_source(tmp_path, "while True: pass\ndef rows(): ...\n")
    assert hidden_options(small(endless, endless.replace("train", "validation")), local_only=True) == []
