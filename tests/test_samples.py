"""What a run of tests says at its end where the published samples are missing."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

REPOSITORY = Path(__file__).parents[1]

SUITE = """
import pytest

@pytest.mark.needs_samples("published items are readable")
def test_reading():
    assert True

@pytest.mark.needs_samples("published items are trained on")
def test_training():
    assert True

@pytest.mark.skip(reason="something else")
def test_other():
    assert False

def test_without():
    assert True
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A repository with four tests, two of which need the samples."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))  # where `tests.samples` is found
    repository = pytester.mkdir("repository")
    (repository / "pytest.ini").write_text("[pytest]\n")
    (repository / "test_suite.py").write_text(SUITE)
    monkeypatch.chdir(repository)
    return pytester


def test_one_line_says_what_was_skipped_and_what_it_would_have_shown(suite: pytest.Pytester) -> None:
    """Also where several processes run the tests."""
    result = suite.runpytest_subprocess("-p", "tests.samples", "-n2", "--strict-markers")
    result.assert_outcomes(passed=1, skipped=3)
    (line,) = [line for line in result.outlines if "They would show" in line]
    assert line == (
        f"2 tests were skipped, because {suite.path / 'shared' / 'data'} is missing. They would show that "
        "published items are readable; published items are trained on."
    )


def test_nothing_is_said_where_the_samples_are_there(suite: pytest.Pytester) -> None:
    (suite.path / "shared" / "data").mkdir(parents=True)
    result = suite.runpytest_subprocess("-p", "tests.samples", "-n0", "--strict-markers")
    result.assert_outcomes(passed=3, skipped=1)
    result.stdout.no_fnmatch_line("*They would show*")
