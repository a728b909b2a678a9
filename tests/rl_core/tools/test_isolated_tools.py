"""A user's functions as tools, in their real processes."""

import json
from collections.abc import Iterator
from concurrent.futures import Future
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rl_core.config.data import DataConfig
from rl_core.config.tools import ToolsConfig
from rl_core.data.images import ImageStoreWriter
from rl_core.data.pixels import encode_png
from rl_core.tools.isolated_tools import IsolatedTools
from rl_core.tools.journal import Journal
from rl_core.tools.messages import ToolRequest, ToolResult
from rl_core.tools.tool import Picture, ToolSample
from rl_core.tools.toolbox import tool_schemas

FILE = Path(__file__).with_name("own.py")
DATA = DataConfig.model_validate(
    {name: {"type": "counting", "size": 8, "scene_seed": 1} for name in ("train", "validation")}
    | {"min_pixels": 784, "max_pixels": 3136}
)
LIMITS: dict[str, Any] = {"timeout_seconds": 2.0, "memory_limit_gib": 1.5, "load_timeout_seconds": 30.0}
NAMES = ("multiplied", "found", "cut_out", "waited", "drawn", "harmful")


def config_of(*names: str, **settings: Any) -> ToolsConfig:
    return ToolsConfig(use=tuple(f"{FILE}:{name}" for name in names), **(LIMITS | settings))


def journal(folder: Path) -> Journal:
    return Journal(folder, needed_from=lambda: 0)


class Asked:
    """Tools, and what is asked of them: each call is another one, but where its place is given."""

    def __init__(self, tools: IsolatedTools, sample: ToolSample, events: list[dict[str, Any]], store: Path) -> None:
        self.tools, self.sample, self.events, self.store = tools, sample, events, store
        self.calls = 0

    def begin(self, name: str, *, place: int | None = None, **arguments: Any) -> "Future[ToolResult]":
        self.calls += 1
        number = self.calls if place is None else place
        request = ToolRequest(sample=self.sample, arguments=arguments, seed=1, place=number)
        return self.tools.call(name, request, version=0)

    def __call__(self, name: str, **arguments: Any) -> ToolResult:
        return self.begin(name, **arguments).result()


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    home = tmp_path_factory.mktemp("run")
    (home / "data").mkdir()
    left = np.zeros((56, 56, 3), np.uint8)
    left[:, :28] = (255, 0, 0)
    with ImageStoreWriter(home / "data" / "images") as writer:
        uid = writer.add(encode_png(Image.fromarray(left).resize((50, 50))))
    picture = Picture(uid, (50, 50), (56, 56), uid, (0, 0, 1, 1), (50, 50))
    sample = ToolSample((picture,), question="What?", prompt_uid="p", sample_index=3, extra={"cat": "an animal"})
    events: list[dict[str, Any]] = []
    kept = journal(home / "calls")
    store = home / "data" / "images"
    log = lambda kind, **fields: events.append({"kind": kind} | fields)  # noqa: E731
    with IsolatedTools(config_of(*NAMES), DATA, image_store=store, journal=kept, log_event=log) as tools:
        yield Asked(tools, sample, events, store)


def test_what_a_tool_returns_is_shown(asked: Asked) -> None:
    assert asked("multiplied", a=6, b=7) == ToolResult(["42"], None, None)
    (text,) = asked("found", word="cat").shown
    assert isinstance(text, str)
    assert json.loads(text) == {"word": "cat", "meaning": "an animal", "question": "What?"}
    assert asked("waited", seconds=0.01).shown == ["waited"]


def test_a_tool_sees_the_pictures_as_the_model_sees_them_and_its_images_are_scaled(asked: Asked) -> None:
    shown = asked("cut_out", x1=0, y1=0, x2=28, y2=28).shown
    assert shown[1] == "28 x 28 pixels"
    assert isinstance(shown[0], bytes)
    image = Image.open(BytesIO(shown[0]))
    assert (image.format, image.size) == ("PNG", (56, 56)), "112 x 112 are more than max_pixels"
    assert np.asarray(image)[:, :50].mean(axis=(0, 1)) == pytest.approx((255, 0, 0), abs=8)
    (large,) = asked("harmful", harm="gives a large image").shown
    assert isinstance(large, bytes)
    assert np.prod(Image.open(BytesIO(large)).size) <= 3136


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("multiplied", {"a": 6}, "b: "),
        ("multiplied", {"a": "six", "b": 7}, "a: "),
        ("multiplied", {"a": 6, "b": 7, "c": 8}, "c: "),
        ("found", {"word": "dog"}, "nothing is known of dog"),
        ("found", {"word": "cat", "sample": 1}, "no argument sample"),
        ("waited", {"seconds": 0.0}, "wait longer"),
    ],
)
def test_a_value_error_and_wrong_arguments_are_the_models_mistake(
    asked: Asked, name: str, arguments: dict[str, Any], sentence: str
) -> None:
    result = asked(name, **arguments)
    assert (result.shown, result.error) == ([], None)
    assert result.mistake is not None
    assert sentence in result.mistake


def test_draws_depend_on_the_call_alone(asked: Asked, tmp_path: Path) -> None:
    first, second = asked("drawn").shown, asked("drawn").shown
    assert first != second
    config, kept = config_of("drawn"), journal(tmp_path / "calls")
    with IsolatedTools(config, DATA, image_store=asked.store, journal=kept, log_event=print) as tools:
        again = Asked(tools, asked.sample, [], asked.store).begin("drawn", place=asked.calls - 1)
        assert again.result().shown == first


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        ("raises", "KeyError: 'a secret of the tool' (own.py line "),
        ("hangs", "no result within tools.timeout_seconds = 2"),
        ("exits", "the process died in the call: exit code 0"),
        ("crashes", "the process died in the call: signal SIGSEGV"),
        ("fills the memory", "MemoryError: more than tools.memory_limit_gib = 1.5"),
        ("gives nothing", "ValueError: returned NoneType, not a text, an image"),
        ("gives an object", "ValueError: returned object, not a text, an image"),
    ],
)
def test_what_a_tool_does_wrong_costs_its_own_call(asked: Asked, harm: str, reason: str) -> None:
    others = [asked.begin("multiplied", a=number, b=2) for number in range(5)]
    bad = asked.begin("harmful", harm=harm)
    others += [asked.begin("multiplied", a=number, b=2) for number in range(5)]
    result = bad.result()
    assert result.error is not None
    assert result.error.startswith(reason)
    assert [one.result().shown for one in others] == [[str(2 * number)] for number in range(5)] * 2
    event = asked.events[-1]
    assert (event["kind"], event["tool"], event["prompt"], event["sample"]) == ("tool_failed", "harmful", "p", 3)


def test_texts_are_made_fit_to_be_kept(asked: Asked) -> None:
    assert asked("harmful", harm="gives half a letter").shown == ["half \\ud83d"]
    (text,) = asked("harmful", harm="gives a long text").shown
    assert len(text) == 64 * 512, "no more than so many tokens can hold"
    assert asked("harmful", harm="forks").shown == ["unharmed"]


def test_schemas_come_from_the_functions_in_another_process() -> None:
    schemas = tool_schemas(config_of("found", "multiplied"), DATA)
    assert [schema["function"]["name"] for schema in schemas] == ["found", "multiplied"]
    assert schemas[0]["function"]["parameters"]["properties"] == {
        "word": {"type": "string", "description": "The word."}
    }, "without the conversation, which the model does not give"


@pytest.mark.parametrize(("name", "words"), [("undescribed", "undescribed"), ("untyped", "untyped")])
def test_a_function_that_the_model_cannot_be_told_of_is_named(name: str, words: str) -> None:
    with pytest.raises(ValueError, match=f"tools: .*own.py:{name}: .*{words}"):
        tool_schemas(config_of("found", name), DATA)


def test_a_file_that_does_not_load_is_named(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("import nowhere_to_be_found\ndef look(): ...\n")
    with pytest.raises(
        ValueError, match=r"broken.py:look: .*No module named 'nowhere_to_be_found' \(broken.py line 1\)"
    ):
        tool_schemas(ToolsConfig(use=(f"{file}:look",)), DATA)


def test_the_tools_of_the_page_are_tools(asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[3] / "docs" / "tools.md"
    functions, environment = (block.partition("```")[0] for block in page.read_text().split("```python\n")[1:])
    file = tmp_path / "of_the_page.py"
    file.write_text(functions + environment)
    (tmp_path / "handbook").mkdir()
    for name, text in {"a": "The cat sat.", "b": "A dog barks at the cat", "c": "Nothing", "d": "dog"}.items():
        (tmp_path / "handbook" / f"{name}.txt").write_text(text)
    monkeypatch.chdir(tmp_path)
    names = ("calculate", "search", "crop")
    config = ToolsConfig(use=tuple(f"{file}:{name}" for name in names), environment=f"{file}:Walk")
    assert [one["function"]["name"] for one in tool_schemas(config, DATA)] == [*names, "move"]
    kept = journal(tmp_path / "calls")
    with IsolatedTools(config, DATA, image_store=asked.store, journal=kept, log_event=print) as tools:
        of_page = Asked(tools, asked.sample, [], asked.store)
        assert of_page("calculate", a=6, b=4, operation="divide").shown == ["1.5"]
        assert of_page("calculate", a=6, b=0, operation="divide").mistake == "this cannot be calculated"
        assert of_page("search", query="the dog").shown == ["A dog barks at the cat", "The cat sat.", "dog"]
        (image,) = of_page("crop", x1=0, y1=0, x2=28, y2=28).shown
        assert isinstance(image, bytes)
        assert np.asarray(Image.open(BytesIO(image))).mean(axis=(0, 1)) == pytest.approx((255, 0, 0), abs=8)
