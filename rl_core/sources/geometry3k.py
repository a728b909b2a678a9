"""Geometry3K as published: a folder of item folders, each with data.json and img_diagram.png.

Source: Lu et al., "Inter-GPS" (2021), https://github.com/lupantech/InterGPS; the columns are the same as in the
dataset that EasyR1's baselines use: the annotated text after one image, and the text of the right choice as the answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from typing_extensions import override

from rl_core.files import read_regular
from rl_core.sources.columns import Columns
from rl_core.sources.conversation import IMAGE_PLACE
from rl_core.sources.json_rows import parse_json
from rl_core.sources.tables import FolderReader, RawRow

ITEM_FILE = "data.json"
DIAGRAM_FILE = "img_diagram.png"
_COLUMNS = Columns(prompt_key="annotat_text", image_key=DIAGRAM_FILE, video_key=None)
_KEPT = ("id", "choices", "problem_type_graph", "problem_type_goal", "data_type")


@dataclass(frozen=True, kw_only=True)
class Geometry3kReader(FolderReader):
    """The item folders below `folder`, in the order of their numbers."""

    kind = "geometry3k"
    columns: Columns = _COLUMNS

    @cached_property
    @override
    def files(self) -> list[Path]:
        return sorted(self.folder.glob(f"*/{ITEM_FILE}"), key=_item_order)[: self.limit]

    @override
    def raw_rows(self) -> Iterator[RawRow]:
        for path in self.files:
            yield _raw_row(path, path.parent)


def _raw_row(path: Path, folder: Path) -> RawRow:
    try:
        item = _read_item(path)
    except ValueError as error:
        return RawRow(str(error), folder, folder.name, ITEM_FILE)
    question, letter = item.get("annotat_text"), item.get("answer")
    try:
        answer = _right_choice(letter, item.get("choices")) if letter else None
    except ValueError as error:
        return RawRow(str(error), folder, folder.name, "answer")
    values = {key: item[key] for key in _KEPT if key in item} | {"letter": letter, "answer": answer}
    is_asked = isinstance(question, str) and question.strip()
    values["annotat_text"] = f"{IMAGE_PLACE}{question}" if is_asked else None
    return RawRow({**values, DIAGRAM_FILE: (folder / DIAGRAM_FILE).absolute()}, folder, folder.name)


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


def _right_choice(letter: Any, choices: Any) -> str:
    if not isinstance(choices, list) or letter not in [chr(ord("A") + number) for number in range(len(choices))]:
        raise ValueError(f"the answer {letter!r} is none of the choices {choices}")
    return str(choices[ord(letter) - ord("A")])
