"""A model without a family of its own is trained only with a certificate of this machine."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rl_core.config.model import PretrainedModel, TinyModel
from rl_core.planning import certificates
from rl_core.planning.certificates import (
    Certificate,
    certificate_of,
    certificate_problem,
    certificate_words,
    keep_certificate,
)

FIELDS = {"model_type": "starcoder2", "hidden_size": 64}
FOUND = Certificate(
    model_type="starcoder2", device="CPU", dtype="float32", verdicts={"opens": "ok", "two ranks": "not checked"}
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def model(folder: Path, **fields: object) -> PretrainedModel:
    (folder / "config.json").write_text(json.dumps(FIELDS | fields))
    return PretrainedModel(type="pretrained", path=str(folder))


def test_the_command_that_makes_it_is_named(tmp_path: Path) -> None:
    problem = certificate_problem(model(tmp_path))
    assert problem is not None and problem.fatal and problem.where == "model.source"
    assert "'starcoder2' has no certificate" in problem.what
    assert f"sightline doctor --model {tmp_path}" in problem.fix


def test_a_model_that_passes_is_trained(tmp_path: Path) -> None:
    source = model(tmp_path)
    keep_certificate(FIELDS, FOUND)
    assert certificate_of(FIELDS) == FOUND
    assert certificate_problem(source) is None


def test_a_reader_is_told_what_holds() -> None:
    assert certificate_words(FIELDS) == "none"
    assert certificate_words({"model_type": "llama"}) == "that of the family llama, made by the tests of Sightline"
    keep_certificate(FIELDS, FOUND)
    assert certificate_words(FIELDS) == f"holds 1 checks on CPU in float32, made on {datetime.now(UTC).date()}"
    keep_certificate(FIELDS, replace(FOUND, verdicts={"trees": "fails"}))
    assert certificate_words(FIELDS).endswith("; trees fails")


def test_a_check_that_fails_is_named(tmp_path: Path) -> None:
    source = model(tmp_path)
    keep_certificate(
        FIELDS, Certificate(model_type="starcoder2", device="CPU", dtype="float32", verdicts={"trees": "fails"})
    )
    problem = certificate_problem(source)
    assert problem is not None and "trees fails" in problem.what


@pytest.mark.parametrize("changed", [{"hidden_size": 32}, {"rope_theta": 1.0}])
def test_another_config_needs_its_own(changed: dict, tmp_path: Path) -> None:
    keep_certificate(FIELDS, FOUND)
    assert certificate_problem(model(tmp_path, **changed)) is not None


@pytest.mark.parametrize("changed", [{"transformers_version": "9"}, {"dtype": "bfloat16"}, {"_name_or_path": "x"}])
def test_fields_that_do_not_concern_the_layers_need_no_new_certificate(changed: dict, tmp_path: Path) -> None:
    keep_certificate(FIELDS, FOUND)
    assert certificate_problem(model(tmp_path, **changed)) is None


def test_other_versions_need_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_certificate(FIELDS, FOUND)
    monkeypatch.setattr(certificates, "distributions", list)
    assert certificate_problem(model(tmp_path)) is not None


def test_a_family_of_the_package_needs_none(tmp_path: Path) -> None:
    assert certificate_problem(model(tmp_path, model_type="qwen3")) is None
    assert certificate_problem(TinyModel(type="tiny")) is None
