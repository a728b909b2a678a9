"""A family of a person's own is found wherever that of a model is asked for, as long as the config that names it is at
work, and never else."""

import json
import re
from pathlib import Path

import pytest

from rl_core.config.loading import load_config
from rl_core.config.model import PretrainedModel
from rl_core.families.own import WrongFamily, keep_own_family, own_family
from rl_core.families.registry import FAMILIES, family_of, find_family, reserved_tokens, vision_modules, vision_of
from rl_core.planning.certificates import Certificate, certificate_problem, certificate_words, keep_certificate
from rl_core.planning.rules import quick_problems

FILE = """
from dataclasses import replace
from parts import VISION
from rl_core.families.family import Family
FAMILY = Family(name="mine", model_type="llava_next", vision=VISION)
LLAMA = Family(name="mine", model_type="llama", unused_tokens=("<mine>",))
TEXT = "mine"
"""
PARTS = """
from dataclasses import replace
from rl_core.families.internvl import Tiles
VISION = replace(Tiles(), tower="my_tower", special_tokens=("<seen>",), id_tokens={"seen_token_id": "<seen>"})
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "parts.py").write_text(PARTS)
    (tmp_path / f"{tmp_path.name.rstrip('0123456789')}mine.py").write_text(FILE)
    return next(tmp_path.glob("*mine.py"))


def test_it_is_found_as_long_as_its_config_is_at_work(file: Path) -> None:
    fields = {"model_type": "llava_next", "vision_config": {}}
    with pytest.raises(ValueError, match="no family here says how it sees"):
        family_of(fields)
    with own_family(f"{file}:FAMILY"):
        family = family_of(fields)
        assert (family.name, find_family(fields), vision_of("llava_next")) == ("mine", family, family.vision)
        assert re.fullmatch(vision_modules(), "model.my_tower.blocks.0")
        assert reserved_tokens(fields) == ("<seen>",)
        with own_family(None):
            assert find_family(fields) is None
        assert find_family(fields) is family
    assert find_family(fields) is None and not re.fullmatch(vision_modules(), "model.my_tower.blocks.0")


def test_a_worker_keeps_that_of_its_config(file: Path) -> None:
    try:
        keep_own_family(f"{file}:LLAMA")
        assert family_of({"model_type": "llama"}).unused_tokens == ("<mine>",)
    finally:
        keep_own_family(None)
    assert family_of({"model_type": "llama"}) is FAMILIES["llama"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("FAMILY", "is of architecture 'llava_next', and the model's is 'llama'"),
        ("TEXT", "`TEXT` is str, and no rl_core.families.family.Family"),
        ("FAMILIE", "defines no `FAMILIE`; did you mean `FAMILY`"),
    ],
)
def test_one_that_is_wrong_is_a_problem_of_its_key_alone(file: Path, name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    source = f"model.source={{type: pretrained, path: {tmp_path}}}"
    config = load_config(Path("configs/quickstart.yaml"), [source, f"model.family={file}:{name}"])
    with own_family(config.model.family):
        found = [problem for problem in quick_problems(config) if problem.where.startswith("model.")]
        with pytest.raises(WrongFamily):
            family_of({"model_type": "llama"})
    assert [problem.where for problem in found] == ["model.family"] and why in found[0].what


def test_an_import_that_fails_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "breaking_family.py").write_text("X = 1\nFAMILY = 1 / 0\n")
    with own_family(f"{tmp_path}/breaking_family.py:FAMILY"), pytest.raises(WrongFamily, match=r"ZeroDivision.*line 2"):
        family_of({"model_type": "llama"})


def test_a_tiny_model_has_none_of_its_own() -> None:
    config = load_config(Path("configs/quickstart.yaml"), ["model.family=mine.py:FAMILY"])
    with own_family(config.model.family):
        found = [problem for problem in quick_problems(config) if problem.where.startswith("model.")]
    assert [problem.where for problem in found] == ["model.family"]


def test_it_needs_a_certificate_of_its_own_which_belongs_to_its_code(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fields = {"model_type": "llama"}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    source = PretrainedModel(type="pretrained", path=str(tmp_path))
    assert certificate_problem(source) is None
    assert "family llama" in certificate_words(fields)
    made = Certificate(model_type="llama", device="cpu", dtype="float32", verdicts={"all": "ok"})
    with own_family(f"{file}:LLAMA"):
        problem = certificate_problem(source)
        assert problem is not None
        assert problem.fix == f"make it: sightline doctor --model {tmp_path} --family {file}:LLAMA"
        assert certificate_words(fields) == "none"
        keep_certificate(fields, made)
        assert certificate_problem(source) is None
    assert "family llama" in certificate_words(fields)
    other = file.with_name("other.py")
    other.write_text(file.read_text())
    (tmp_path / "parts.py").write_text(PARTS + "# edited\n")
    with own_family(f"{other}:LLAMA"):
        assert certificate_problem(source) is not None
