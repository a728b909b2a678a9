"""An imported config is the same experiment as the one that EasyR1 was given, key by key; what is not is printed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_core.config.run import RunConfig
from sightline_tools.easyr1.importer import KEYS, Imported, import_easyr1
from tests.sightline_tools.easyr1.cases import CASES, CASES_WITHOUT_A_FILE
from tests.sightline_tools.easyr1.example import every_key
from tests.sightline_tools.easyr1.meaning import (
    WITHOUT_EFFECT,
    Reference,
    command_line,
    flat,
    printed,
    resolved,
    sightline_config,
)

FILES = {
    "examples/format_prompt/math.jinja": "{{ content }} Put the answer into a box.",
    "examples/format_prompt/r1v.jinja": "{{ content }} Answer between tags.",
    "examples/format_prompt/dapo.jinja": "{{ content }} End with the answer.",
    "examples/reward_function/math.py": "def compute_score(inputs): return [{'overall': 0.0, 'accuracy': 0.0}]\n",
    "examples/reward_function/r1v.py": "def compute_score(inputs): return {'overall': 0.0, 'accuracy': 0.0}\n",
    "examples/reward_function/dapo.py": "def compute_score(inputs): return [{'overall': 0.0, 'accuracy': 0.0}]\n",
    "examples/reward_function/plain.py": "def main(inputs): return [{'overall': 0.0}]\n",
    "rows/train.jsonl": "",
    "rows/test.parquet": "",
}
BOTH = {**CASES, **CASES_WITHOUT_A_FILE}
Import = Callable[[str], Imported]


@pytest.fixture
def importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Import:
    """Imports a case in a folder like EasyR1's, as a person stands there."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "examples" / "config.yaml").write_text(yaml.safe_dump(every_key()))
    monkeypatch.chdir(tmp_path)

    def run(case: str) -> Imported:
        path = Path("examples/config.yaml") if case in CASES else None
        return import_easyr1(path, command_line(BOTH[case]))

    return run


def reference(case: str) -> Reference:
    return resolved(BOTH[case], with_example=case in CASES)


def accuracy_key(e: Reference) -> str:
    return "overall" if "plain.py" in e["worker.reward.reward_function"] else "accuracy"


def meant(e: Reference) -> dict[str, Any]:
    places = {written: name for name in (*FILES, "rows") for written in (name, f"./{name}")}
    return sightline_config(e, places, accuracy_key(e))


@pytest.mark.parametrize("case", BOTH)
def test_every_key_of_the_config_is_what_the_experiment_means(importing: Import, case: str) -> None:
    """A key that stands on one side alone is new: give it its meaning in meaning.py."""
    imported = importing(case)
    assert not imported.missing
    assert flat(RunConfig.model_validate(imported.tree).model_dump(mode="json")) == meant(reference(case))


@pytest.mark.parametrize("case", BOTH)
def test_only_settings_with_another_meaning_are_printed(importing: Import, case: str) -> None:
    e = reference(case)
    imported = importing(case)
    named = {note.key for note in (*imported.lost, *imported.differing)}
    assert named == {key for key, is_printed in printed(e).items() if is_printed}
    text = imported.text("From EasyR1")
    assert all(f"{note.key} = " in text for note in (*imported.lost, *imported.differing))


def test_every_key_of_easyr1_has_a_meaning_here_or_none_there() -> None:
    """A key that neither table above asks for would be lost silently. The critic's model and devices, and those of
    the reference, are the policy's."""
    asked: set[str] = set()
    for case in BOTH:
        e = reference(case)
        meant(e)
        printed(e)
        asked |= e.asked
    held_alike = {name for name in KEYS if name.startswith(("worker.ref.", "worker.critic.fsdp.", "worker.critic.off"))}
    as_policy = {name for name in KEYS if name.startswith("worker.critic.model.")}
    unused = {f"worker.critic.{name}" for name in ("strategy", "padding_free", "dynamic_batching", "ulysses_size")}
    unused |= {"worker.critic.use_torch_compile"}
    assert set(KEYS) - asked - WITHOUT_EFFECT == held_alike | as_policy | unused
    assert not asked & WITHOUT_EFFECT


def test_everything_that_may_be_printed_is_printed_in_some_case_and_not_in_another() -> None:
    answers: dict[str, set[bool]] = {}
    for case in BOTH:
        for key, is_printed in printed(reference(case)).items():
            answers.setdefault(key, set()).add(bool(is_printed))
    assert {key for key, seen in answers.items() if len(seen) == 1} == {"worker.reward.reward_function"}


def test_the_defaults_are_those_of_easyr1() -> None:
    defaults = resolved({}, with_example=False)
    theirs = {name: list(key.default) if isinstance(key.default, tuple) else key.default for name, key in KEYS.items()}
    assert dict(defaults) == theirs
