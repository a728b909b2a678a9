"""docs/configuration.md, written from the models: a table a section, so that page and code cannot disagree.

python -m sightline_tools.docs.reference docs/configuration.md
"""

import ast
import inspect
import json
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel, BeforeValidator, JsonValue
from pydantic.fields import FieldInfo

from rl_core.config.key_kinds import LAST_BITS, LENGTH, OPERATION
from rl_core.config.run import RunConfig
from rl_core.section import kind_of

INTRODUCTION = """# Configuration

Every key of a run's config, a YAML file of sections. `extends: other.yaml` starts from another file, whose path is
relative to the file in which it stands. Files that a config names are looked for in its own folder, then in those of
the files that it extends (`paths_from`), and last, with a warning, in the working directory. What a run writes (the
runs, MLflow's database) is relative to the working directory.
`sightline run CONFIG actor.optim.lr=1e-6` changes a key on the command line, where a value is YAML too:
`'evaluation.modes=[greedy]'`. A config is refused if it has an unknown key, a key twice in one section, or a value out
of bounds. Texts without quotes are read as in YAML 1.2: `1e-6` and `010` are numbers, dates and `1:30` are texts.
`make docs` writes this page from the models in `rl_core/config`.
"""

KINDS = """## What makes another run

A run is its recipe and the contents of the files that the config names (rewards, templates, data, weights). A change of
a key of length or operation goes on with the run: with the same command, or with
`sightline run --resume RUN KEY=VALUE`. A section stands for all of its keys. The event `config-changed` in events.jsonl
records what changed, and after which step. How a run goes on with other files or another recipe is in
[operations](operations.md#longer-mended-forked).
"""

PLAIN_NAMES = {
    bool: "true / false",
    int: "integer",
    float: "number",
    str: "text",
    types.NoneType: "null",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class SectionPlace:
    """A section and its place in the config: its dotted key, and the `type:` that selects it where there are
    several."""

    key: str
    section: type[BaseModel]
    kind: str | None = None

    @property
    def title(self) -> str:
        """As in the heading of its chapter."""
        title = f"`{self.key}`" if self.key else "The top level"
        return title + (f" with `type: {self.kind}`" if self.kind else "")


def configuration_page() -> str:
    """The whole page in Markdown. A section that stands in several places is described at the first of them."""
    described: dict[type[BaseModel], SectionPlace] = {}
    for place in _places(SectionPlace(key="", section=RunConfig)):
        described.setdefault(place.section, place)
    homes: dict[tuple[str, str], SectionPlace] = {}
    for place in described.values():
        for meaning in meanings(place.section).items():
            homes.setdefault(meaning, place)
    chapters = (_chapter(place, described, homes) for place in described.values())
    return "\n".join([INTRODUCTION, key_kinds_chapter(), *chapters])


def key_kinds_chapter() -> str:
    """The chapter that says which keys make another run."""
    kinds = {
        "length": (LENGTH, "the same run, longer: it goes on from its newest checkpoint"),
        "operation": (OPERATION - LAST_BITS, "the same run, from its next start on"),
        "operation, in another order of sums": (
            LAST_BITS,
            "the same run, but the last bits of its numbers differ from there on",
        ),
    }
    lines = [
        f"- **{kind[0].upper()}{kind[1:]}**, {meaning}: {', '.join(f'`{key}`' for key in sorted(keys))}."
        for kind, (keys, meaning) in kinds.items()
    ]
    return "\n".join([KINDS, *lines, "- **Recipe**, another run: every other key.", ""])


def _places(place: SectionPlace) -> Iterator[SectionPlace]:
    """The place itself and every section below it, depth first, in the order of the fields."""
    yield place
    for name, field in place.section.model_fields.items():
        sections = _sections_in(field.annotation)
        for section in sections:
            key = f"{place.key}.{name}".lstrip(".")
            yield from _places(
                SectionPlace(key=key, section=section, kind=kind_of(section) if len(sections) > 1 else None)
            )


def _sections_in(annotation: Any) -> list[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for argument in get_args(annotation) for section in _sections_in(argument)]


def _chapter(
    place: SectionPlace,
    described: Mapping[type[BaseModel], SectionPlace],
    homes: Mapping[tuple[str, str], SectionPlace],
) -> str:
    """Heading, sentence and table of a section; a long meaning that an earlier table has is not repeated."""
    rows = [
        _row(name, field, place, described, _meaning(name, text, place, homes[name, text]))
        for name, field in place.section.model_fields.items()
        if not (place.kind and name == "type")
        for text in [meanings(place.section)[name]]
    ]
    header = ["| key | type | default | bounds | meaning |", "|---|---|---|---|---|"]
    table = [*header, *rows, ""] if rows else []
    return "\n".join([f"## {place.title}", "", _one_line(place.section.__doc__ or ""), "", *table])


def _meaning(name: str, text: str, place: SectionPlace, home: SectionPlace) -> str:
    reference = f"As in {home.title}."
    return reference if place is not home and len(text) > 2 * len(reference) else _one_line(text)


def meanings(section: type[BaseModel]) -> dict[str, str]:
    """[field] -> the text below it in the source of its class. pydantic can do this too (`use_attribute_docstrings`),
    but at every start of every process, for 0.1 s."""
    sections = [one for one in reversed(section.__mro__) if issubclass(one, BaseModel) and one is not BaseModel]
    return {name: text for one in sections for name, text in _texts_in(one)}


def _texts_in(section: type[BaseModel]) -> Iterator[tuple[str, str]]:
    (tree,) = ast.parse(inspect.getsource(section)).body
    assert isinstance(tree, ast.ClassDef)
    for statement, following in pairwise(tree.body):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, text


def _row(
    name: str, field: FieldInfo, place: SectionPlace, described: Mapping[type[BaseModel], SectionPlace], text: str
) -> str:
    kind = type_words(field.annotation)
    sections = _sections_in(field.annotation)
    if sections:
        home = described[sections[0]].key
        if home != f"{place.key}.{name}".lstrip("."):
            kind += f", as `{home}`"
        elif len(sections) > 1:
            kind += f", of type {', '.join(f'`{kind_of(section)}`' for section in sections)}"
    cells = [f"`{name}`", kind, _default(field), _bounds(field), text]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def type_words(annotation: Any) -> str:
    """A type as a reader of YAML would call it: "integer or null", "one of `a`, `b`", "list of number"."""
    if annotation in PLAIN_NAMES:
        return PLAIN_NAMES[annotation]
    if _sections_in(annotation):
        return _section_words(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        values = ", ".join(f"`{value}`" for value in arguments)
        return values if len(arguments) == 1 else f"one of {values}"
    if origin is Annotated:
        return type_words(arguments[0])
    if origin in (Union, types.UnionType):
        return " or ".join(map(type_words, arguments))
    if origin is tuple and arguments[-1] is not Ellipsis:
        return f"list of {len(arguments)}: " + ", ".join(map(type_words, arguments))
    if origin in (tuple, list):
        return f"list of {type_words(arguments[0])}"
    assert origin is dict, f"no words for the type {annotation}"
    if arguments[1] is JsonValue:
        return "mapping"
    return f"mapping of {type_words(arguments[0])} to {type_words(arguments[1])}"


def _section_words(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is tuple:
        return "list of sections"
    if origin is dict:
        return f"mapping of {type_words(arguments[0])} to section"
    return "section or null" if types.NoneType in arguments else "section"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if isinstance(field.default, BaseModel):
        changed = field.default.model_dump(mode="json", exclude_defaults=True)
        kind = {"type": kind_of(type(field.default))} if len(_sections_in(field.annotation)) > 1 else {}
        return f"`{json.dumps(kind | changed)}`" if kind | changed else "`{}`"
    return f"`{json.dumps(field.default)}`"


def _bounds(field: FieldInfo) -> str:
    words = []
    for bound in (*field.metadata, *_bounds_within(field.annotation)):
        match bound:
            case annotated_types.Ge(ge=limit):
                words.append(f">= {limit}")
            case annotated_types.Gt(gt=limit):
                words.append(f"> {limit}")
            case annotated_types.Le(le=limit):
                words.append(f"<= {limit}")
            case annotated_types.Lt(lt=limit):
                words.append(f"< {limit}")
            case annotated_types.MultipleOf(multiple_of=step):
                words.append(f"multiple of {step}")
            case annotated_types.MinLen(min_length=length):
                words.append(f"at least {length}")
            case annotated_types.MaxLen(max_length=length):
                words.append(f"at most {length} characters")
            case BeforeValidator():
                pass  # it converts a value and bounds nothing
            case _ if getattr(bound, "pattern", None):
                words.append(f"matches `{bound.pattern}`")
            case _:
                raise AssertionError(f"no words for the bound {bound!r}")
    return ", ".join(words)


def _bounds_within(annotation: Any) -> Iterator[Any]:
    """The bounds of the kinds of value that a union has."""
    if get_origin(annotation) in (Union, types.UnionType):
        for kind in get_args(annotation):
            if get_origin(kind) is Annotated and not _sections_in(kind):
                yield from get_args(kind)[1:]


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(configuration_page())
