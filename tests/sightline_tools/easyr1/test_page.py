"""The migration page is the importer's table, and the table knows every key on either side."""

from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from rl_core.config.run import RunConfig
from sightline_tools.easyr1.importer import KEYS
from sightline_tools.easyr1.page import migration_page
from tests.sightline_tools.easyr1.example import dotted, every_key

PAGE = Path(__file__).parents[3] / "docs" / "migration.md"


def sections_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for argument in get_args(annotation) for section in sections_in(argument)]


def exists(key: str) -> bool:
    """Whether any section that can stand there has the field."""
    sections: list[type[BaseModel]] = [RunConfig]
    *parents, last = key.split(".")
    for name in parents:
        fields = [section.model_fields[name] for section in sections if name in section.model_fields]
        sections = [inner for field in fields for inner in sections_in(field.annotation)]
    return any(last in section.model_fields for section in sections)


def test_the_committed_page_is_current() -> None:
    assert PAGE.read_text() == migration_page(), "run `make docs`"


def test_every_key_of_easyr1_is_in_the_table_and_on_the_page() -> None:
    page = migration_page()
    assert dotted(every_key()) == set(KEYS)
    assert [name for name in KEYS if f"`{name}`" not in page] == []


@pytest.mark.parametrize("name", sorted({to for key in KEYS.values() for to in key.to}))
def test_every_sightline_key_of_the_table_exists(name: str) -> None:
    assert exists(name)
    assert not exists(f"{name}_of_nothing")


def test_a_key_without_an_equivalent_says_why() -> None:
    assert [name for name, key in KEYS.items() if not key.to and not key.remark] == []
