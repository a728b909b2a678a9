"""Draws the packages of the library, as the import contracts of pyproject.toml lay them on top of each other.

`python -m sightline_tools.docs.rooms docs/images/rooms.svg` (`make docs`) writes the picture of docs/architecture.md.
"""

import sys
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
ABOVE = (("flows", "the pipelines and the command line"), ("tasks", "the stages, one file each"))
KNOWN_FOR = {
    "loop": "the training step and what surrounds it",
    "workers": "trainer and generator behind one protocol",
}

WIDTH, MARGIN, GAP = 760, 40, 10
SINGLE, LOW, HIGH, ARROW = 360, 32, 46, 20
STYLE = "text{font:14px sans-serif;fill:#1a1a2e} .s{font-size:12px;fill:#444}"


def layers_of_the_library() -> list[list[str]]:
    """The layers of rl_core from top to bottom, each a list of rooms."""
    contracts = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (library,) = [contract for contract in contracts if contract.get("containers") == ["rl_core"]]
    return [[room.strip() for room in layer.replace(":", "|").split("|")] for layer in library["layers"]]


def picture() -> str:
    """The picture as SVG."""
    shapes: list[str] = []
    y = 14
    for name, meaning in ABOVE:
        shapes += _box((WIDTH - SINGLE) / 2, y, SINGLE, HIGH, name, [meaning], fill="#e8eaf6")
        shapes += _arrow(y + HIGH)
        y += HIGH + ARROW
    top, y = y, y + 30
    inside: list[str] = []
    *layers, ground = layers_of_the_library()
    for layer in layers:
        height = HIGH if layer[0] in KNOWN_FOR else LOW
        inside += _layer(layer, y, height)
        inside += _arrow(y + height)
        y += height + ARROW
    lines = textwrap.wrap(", ".join(ground), 100)
    height = LOW + 16 * len(lines)
    inside += _box(MARGIN, y, WIDTH - 2 * MARGIN, height, "the base", lines)
    bottom = y + height + 14
    shapes.append(
        f'<rect x="20" y="{top}" width="{WIDTH - 40}" height="{bottom - top}" rx="8" fill="#f7f7fb" stroke="#9fa8da" '
        'stroke-dasharray="5 4"/>'
    )
    shapes.append(f'<text x="36" y="{top + 20}" class="s">rl_core: a library without Prefect</text>')
    size = f'viewBox="0 0 {WIDTH} {bottom + 14}" width="{WIDTH}" height="{bottom + 14}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="Packages and their layers">',
            f"<style>{STYLE}</style>",
            f'<rect width="{WIDTH}" height="{bottom + 14}" rx="8" fill="#ffffff"/>',
            *shapes,
            *inside,
            "</svg>\n",
        ]
    )


def _layer(rooms: Sequence[str], y: int, height: int) -> Iterator[str]:
    if len(rooms) == 1:
        known = KNOWN_FOR.get(rooms[0])
        yield from _box((WIDTH - SINGLE) / 2, y, SINGLE, height, rooms[0], [known] if known else [])
        return
    width = (WIDTH - 2 * MARGIN - GAP * (len(rooms) - 1)) / len(rooms)
    for place, room in enumerate(rooms):
        yield from _box(MARGIN + place * (width + GAP), y, width, height, room, [])


def _box(
    x: float, y: int, width: float, height: int, title: str, lines: Sequence[str], *, fill: str = "#ffffff"
) -> Iterator[str]:
    middle = f"{x + width / 2:g}"
    baseline = y + (20 if lines else height // 2 + 5)
    yield (
        f'<rect x="{x:g}" y="{y}" width="{width:g}" height="{height}" rx="6" fill="{fill}" stroke="#7986cb"/>'
        f'<text x="{middle}" y="{baseline}" text-anchor="middle" font-weight="600">{title}</text>'
    )
    for number, line in enumerate(lines, start=1):
        yield f'<text x="{middle}" y="{baseline + 2 + 16 * number}" text-anchor="middle" class="s">{line}</text>'


def _arrow(y: int) -> Iterator[str]:
    x, tip = WIDTH // 2, y + ARROW
    yield f'<path d="M{x} {y} V{tip - 7}" stroke="#555"/>'
    yield f'<path d="M{x - 5} {tip - 8} L{x} {tip} L{x + 5} {tip - 8} Z" fill="#555"/>'


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(), encoding="utf-8")
