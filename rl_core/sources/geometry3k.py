"""Geometry3K as published: a folder of item folders, each with data.json and img_diagram.png.

Source: Lu et al., "Inter-GPS" (2021), https://github.com/lupantech/InterGPS; the columns are the same as in the
dataset that EasyR1's baselines use: the annotated text after one image, and the text of the right choice as the answer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from typing_extensions import override

from rl_core.files import lies_below, read_regular
from rl_core.sources.conversation import IMAGE_PLACE
from rl_core.sources.json_rows import parse_json
from rl_core.sources.rows import BadRow, Row, unwritable_row
from rl_core.sources.tables import FolderReader

ITEM_FILE = "data.json"
DIAGRAM_FILE = "img_diagram.png"
_KEPT = ("id", "choices", "problem_type_graph", "problem_type_goal", "data_type")


@dataclass(frozen=True, kw_only=True)
class Geometry3kReader(FolderReader):
    """The item folders below `folder`, in the order of their numbers."""

    kind = "geometry3k"

    @cached_property
    @override
    def files(self) -> list[Path]:
        return sorted(self.folder.glob(f"*/{ITEM_FILE}"), key=_item_order)[: self.limit]

    def __iter__(self) -> Iterator[Row | BadRow]:
        for index, path in enumerate(self.files):
            yield self._row(index, path)

    def _row(self, index: int, path: Path) -> Row | BadRow:
        origin, column = path.parent.name, ITEM_FILE
        try:
            item = _read_item(path)
            if (bad := unwritable_row(item, index=index, origin=origin)) is not None:
                return bad
            column = "annotat_text"
            question = _text(item, column)
            column = "answer"
            answer = _right_choice(item)
            column = DIAGRAM_FILE
            diagram = _diagram(path.parent)
        except ValueError as error:
            return BadRow(index=index, column=column, reason=str(error), origin=origin)
        return Row(
            index=index,
            question=IMAGE_PLACE + question,
            images=(diagram,),
            answer=answer,
            data_source=self.name,
            extra={key: item[key] for key in _KEPT if key in item} | {"letter": item["answer"]},
            origin=origin,
            question_column="annotat_text",
            image_column=DIAGRAM_FILE,
        )


def _item_order(path: Path) -> tuple[int, str]:
    name = path.parent.name
    return (int(name) if name.isdecimal() else 0, name)


def _read_item(path: Path) -> dict[str, Any]:
    try:
        item = parse_json(read_regular(path).decode("utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"the item {error}") from None
    if not isinstance(item, dict):
        raise ValueError("the item holds no JSON object")
    return item


def _diagram(folder: Path) -> Path:
    # A downloaded folder must not choose which files of this machine are read.
    path = folder / DIAGRAM_FILE
    if not lies_below(path, folder):
        raise ValueError(f"it is a link out of the item's folder, to {path.readlink()}")
    return path


def _text(item: Mapping[str, Any], key: str) -> str:
    value = item.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ValueError("the question is missing")
    if IMAGE_PLACE in value:
        raise ValueError(f"the question contains {IMAGE_PLACE}, which marks the diagram's place")
    return value


def _right_choice(item: Mapping[str, Any]) -> str:
    letter, choices = item.get("answer"), item.get("choices")
    if not letter:
        raise ValueError("the answer is missing")
    if not isinstance(choices, list) or letter not in [chr(ord("A") + number) for number in range(len(choices))]:
        raise ValueError(f"the answer {letter!r} is none of the choices {choices}")
    return str(choices[ord(letter) - ord("A")])
