"""The documentation as a site: every link leads somewhere, and nothing is fetched from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
FETCHED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=\"?((?:https?:)?//[^\s\">]+)")


def build(site: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site), *options]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    assert not {(page.name, address) for page in pages for address in FETCHED.findall(page.read_text())}
    assert not [sheet for sheet in site.rglob("*.css") if re.search(r"url\([\"']?(?:https?:)?//", sheet.read_text())]


def test_files_outside_of_docs_that_a_page_links_to_are_copied(site: Path) -> None:
    for path in ("benchmarks/results/update.json", "configs/rewards/own.py", "automations.yaml"):
        assert (site / "repository" / path).read_bytes() == (REPOSITORY / path).read_bytes()


def test_links_that_lead_nowhere_are_errors(tmp_path: Path) -> None:
    """In a copy of the documentation with three links more."""
    copy = tmp_path / "copy"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", REPOSITORY.as_uri(), str(copy)], check=True)
    page = copy / "docs" / "glossary.md"
    links = ("nowhere.md", "rewards.md#nothing", "../rl_core/nothing.py")
    page.write_text(page.read_text() + "".join(f"\n[a link]({link})\n" for link in links))
    done = build(tmp_path / "site", "--config-file", str(copy / "mkdocs.yml"))
    assert done.returncode != 0
    for complaint in ("nowhere.md", "does not contain an anchor '#nothing'", "rl_core/nothing.py"):
        assert complaint in done.stdout + done.stderr
