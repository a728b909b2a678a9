"""The code that a module calls is followed through every kind of import, and only what it does counts."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.cache.source_closure import closure, rooms_of

FILES = {
    "rl_core/__init__.py": "",
    "rl_core/loop/__init__.py": "LOOP = 1\n",
    "rl_core/loop/entry.py": "import rl_core.models.net\nfrom rl_core.loop import step\n",
    "rl_core/loop/step.py": "def take():\n    from rl_core.algorithms.loss import loss\n\n    return loss\n",
    "rl_core/loop/unused.py": "USED = False\n",
    "rl_core/models/__init__.py": "",
    "rl_core/models/net.py": "from . import near\nfrom ..rewards.start import COMMAND\n",
    "rl_core/models/near.py": (
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from rl_core.loop import unused\n"
    ),
    "rl_core/algorithms/__init__.py": "",
    "rl_core/algorithms/loss.py": "import torch.nn.functional\n\n\ndef loss(x):\n    return x / 2\n",
    "rl_core/rewards/__init__.py": "",
    "rl_core/rewards/start.py": 'COMMAND = ["python", "-m", "rl_core.rewards.server"]\n',
    "rl_core/rewards/server.py": "def serve():\n    pass\n",
}
ENTRY = "rl_core.loop.entry"


def write(folder: Path, **changed: str) -> Path:
    """The files of a small project, some of them with another text: `rl_core/x.py` is `rl_core__x`."""
    other = {name.replace("__", "/") + ".py": text for name, text in changed.items()}
    for name, text in (FILES | other).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write(tmp_path / "project")


def test_every_kind_of_import_is_followed_and_types_are_not(project: Path) -> None:
    found = closure([ENTRY], sources=project)
    everything = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in FILES}
    assert found.keys() == everything - {"rl_core.loop.unused"}
    assert "torch.nn.functional" in found["rl_core.algorithms.loss"].names


def test_what_is_left_out_takes_along_what_only_it_imports(project: Path) -> None:
    found = closure([ENTRY], without=["rl_core.rewards", "rl_core.loop"], sources=project)
    assert found.keys() == {ENTRY, "rl_core", "rl_core.models", "rl_core.models.net", "rl_core.models.near"}


def test_names_may_be_imported_beside_the_entries(project: Path) -> None:
    found = closure([], imported=["rl_core.algorithms.loss.loss", "numpy"], sources=project)
    assert found.keys() == {"rl_core", "rl_core.algorithms", "rl_core.algorithms.loss"}


def test_an_entry_that_is_not_there_is_an_error(project: Path) -> None:
    with pytest.raises(LookupError, match=r"there is no module rl_core\.loop\.gone"):
        closure(["rl_core.loop.gone"], sources=project)


def rooms(project: Path) -> dict[str, str]:
    return rooms_of(closure([ENTRY], sources=project), project)


def changed_rooms(project: Path, other: Path) -> set[str]:
    before, now = rooms(project), rooms(other)
    return {room for room in before.keys() | now.keys() if before.get(room) != now.get(room)}


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("import torch.nn.functional\n\n\ndef loss(x):\n    return x / 3\n", True),
        ("import torch\n\n\ndef loss(x):\n    return x / 2\n", True),
        ("import torch.nn.functional\n\n\ndef loss(x, y=0):\n    return x / 2\n", True),
        (
            '"""A loss."""\n\nimport torch.nn.functional\n\n\ndef loss( x ):  # half\n  """Half."""\n  return (x/2)\n',
            False,
        ),
    ],
    ids=["a number", "an import", "an argument", "words and layout"],
)
def test_an_edit_changes_its_room_alone_and_words_change_none(
    project: Path, tmp_path: Path, text: str, counts: bool
) -> None:
    other = write(tmp_path / "edited", rl_core__algorithms__loss=text)
    assert changed_rooms(project, other) == ({"rl_core.algorithms"} if counts else set())


def test_a_module_that_nothing_calls_may_change(project: Path, tmp_path: Path) -> None:
    assert changed_rooms(project, write(tmp_path / "edited", rl_core__loop__unused="USED = True\n")) == set()


def test_a_module_that_is_called_anew_counts(project: Path, tmp_path: Path) -> None:
    step = FILES["rl_core/loop/step.py"] + "\n\nfrom rl_core.loop import unused\n"
    assert changed_rooms(project, write(tmp_path / "edited", rl_core__loop__step=step)) == {"rl_core.loop"}


@pytest.mark.parametrize(
    ("name", "counts"),
    [("prompts.jinja", True), ("table.csv", True), (".swp", False), ("py.typed", False), ("loss.pyc", False)],
)
def test_a_file_beside_the_modules_counts_where_it_may_be_read(
    project: Path, tmp_path: Path, name: str, counts: bool
) -> None:
    other = write(tmp_path / "edited")
    (other / "rl_core" / "algorithms" / name).write_text("text")
    assert changed_rooms(project, other) == ({"rl_core.algorithms"} if counts else set())


GRAPHS = st.dictionaries(st.integers(0, 7), st.sets(st.integers(0, 7), max_size=3), min_size=8, max_size=8)


@given(graph=GRAPHS, edited=st.integers(0, 7))
def test_an_edit_counts_if_and_only_if_the_entry_leads_to_it(
    tmp_path_factory: pytest.TempPathFactory, graph: dict[int, set[int]], edited: int
) -> None:
    def written(name: str, extra: dict[int, str]) -> Path:
        package = tmp_path_factory.mktemp(name) / "rl_core"
        for module, imports in graph.items():
            (package / f"room{module}").mkdir(parents=True)
            lines = [*(f"import rl_core.room{other}.m" for other in sorted(imports)), extra.get(module, "")]
            (package / f"room{module}" / "m.py").write_text("\n".join(lines))
        return package.parent

    reached, waiting = set(), [0]
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += graph[module]
    before, now = written("before", {}), written("now", {edited: "X = 1"})
    found = [rooms_of(closure(["rl_core.room0.m"], sources=folder), folder) for folder in (before, now)]
    assert found[0].keys() == {f"rl_core.room{module}" for module in reached}
    different = {room for room in found[0] if found[0][room] != found[1][room]}
    assert different == ({f"rl_core.room{edited}"} & found[0].keys())
