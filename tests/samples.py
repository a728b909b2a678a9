"""Published items, which lie beside the repository and are no part of it: a plain clone does without them.

A test that needs them says so, and what it would show: `@pytest.mark.needs_samples("...")`. Where the folder is missing
the test is skipped, and one line at the end of the run says how many were and what they would have shown.
"""

from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[2] / "shared" / "data"
"""Some items of Geometry3K and of CLEVR, as their authors published them."""
REASON = "the published samples are missing; this test shows that "


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker."""
    config.addinivalue_line("markers", "needs_samples(shows): reads published items; skipped where they are missing")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test whose samples are missing."""
    marker = item.get_closest_marker("needs_samples")
    if marker is not None and not _folder(item.config).is_dir():
        pytest.skip(REASON + marker.args[0])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the line. Where several processes run the tests, this one has the reports of all."""
    shown = [
        reason.partition(REASON)[2]
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple) and REASON in (reason := report.longrepr[2])
    ]
    if shown:
        count = "1 test was" if len(shown) == 1 else f"{len(shown)} tests were"
        folder, would = _folder(terminalreporter.config), "; ".join(sorted(set(shown)))
        terminalreporter.write_line(f"{count} skipped, because {folder} is missing. They would show that {would}.")


def _folder(config: pytest.Config) -> Path:
    """`SAMPLES`, from the folder of the tests that are run."""
    return config.rootpath.parent / "shared" / "data"
