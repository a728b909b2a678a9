"""A folder of classes (`datasets` calls it ImageFolder or VideoFolder): one folder of images or videos for each class.

The answer is the class. The question names the classes if there are few.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from typing_extensions import override

from rl_core.sources.columns import Columns
from rl_core.sources.conversation import IMAGE_PLACE, VIDEO_PLACE
from rl_core.sources.media import UNREAD_ENDINGS
from rl_core.sources.tables import FolderReader, RawRow

_IMAGE_ENDINGS = frozenset(
    {".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".jp2", ".avif", ".ppm", ".pgm", ".tga"}
    | set(UNREAD_ENDINGS)
)
_VIDEO_ENDINGS = frozenset({".mp4", ".avi", ".mkv", ".mov", ".webm", ".m4v"})
_MOST_NAMED = 50
_COLUMNS = Columns(prompt_key="question", image_key="image", video_key="video", answer_key="class")


def is_class_folder(folder: Path) -> bool:
    """Whether a folder directly holds images or videos."""
    return next(_media_in(folder), None) is not None


@dataclass(frozen=True, kw_only=True)
class ClassFolderReader(FolderReader):
    """The images and videos of every class, in the order of their names. `limit` takes rows from all classes in
    turn."""

    kind = "imagefolder"
    columns: Columns = _COLUMNS

    @cached_property
    def _classes(self) -> dict[str, list[Path]]:
        found = {child.name: sorted(_media_in(child)) for child in sorted(self.folder.iterdir()) if child.is_dir()}
        return {name: files for name, files in found.items() if files}

    @cached_property
    @override
    def files(self) -> list[Path]:
        classes = list(self._classes.values())
        if self.limit is None:
            return [file for files in classes for file in files]
        longest = max(map(len, classes), default=0)
        in_turn = (files[number] for number in range(longest) for files in classes if number < len(files))
        return sorted(islice(in_turn, self.limit))

    @override
    def content(self) -> dict[str, Any]:
        return super().content() | {"names": self._names}  # of their folders too, which are the answers

    @property
    def _names(self) -> list[str]:
        return [f"{file.parent.name}/{file.name}" for file in self.files]

    @override
    def raw_rows(self) -> Iterator[RawRow]:
        for path, origin in zip(self.files, self._names, strict=True):
            kind = "video" if path.suffix.lower() in _VIDEO_ENDINGS else "image"
            values = {"question": self._question(kind), kind: path.absolute(), "class": path.parent.name}
            yield RawRow(values, self.folder, origin)

    def _question(self, kind: str) -> str:
        place = VIDEO_PLACE if kind == "video" else IMAGE_PLACE
        names = list(self._classes)
        if not 1 < len(names) <= _MOST_NAMED:
            return f"{place}What does the {kind} show?"
        return f"{place}What does the {kind} show: {', '.join(names[:-1])} or {names[-1]}?"


def _media_in(folder: Path) -> Iterator[Path]:
    """Images and videos directly below a folder, by the endings of their names; hidden files are left out."""
    for path in folder.iterdir():
        if path.suffix.lower() in _IMAGE_ENDINGS | _VIDEO_ENDINGS and not path.name.startswith("."):
            yield path
