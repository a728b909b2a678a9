"""The configuration page is the models' own."""

from pathlib import Path

import pytest
from pydantic import JsonValue

from sightline_tools.docs.reference import configuration_page, type_words

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_committed_page_is_current() -> None:
    assert PAGE.read_text() == configuration_page(), "run `make docs`"


def test_every_field_has_a_sentence() -> None:
    rows = [line for line in configuration_page().splitlines() if line.startswith("| `")]
    silent = [row for row in rows if not row.rstrip("| ").endswith((".", ")", ";"))]
    assert len(rows) > 90
    assert not silent


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (int | None, "integer or null"),
        (tuple[float, float], "list of 2: number, number"),
        (tuple[str, ...], "list of text"),
        (dict[str, bool], "mapping of text to true / false"),
        (dict[str, JsonValue], "mapping"),
    ],
)
def test_types_read_as_a_writer_of_yaml_would_say_them(annotation: object, words: str) -> None:
    assert type_words(annotation) == words


def test_a_bar_in_a_sentence_does_not_break_the_table() -> None:
    widths = {line.replace("\\|", "").count("|") for line in configuration_page().splitlines() if line.startswith("|")}
    assert widths == {6}
