"""An evaluation protocol: what a model is asked, how it answers, and how the answers are graded."""

import ast
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from rl_core.config.reward import RewardConfig
from rl_core.config.stages import EvaluationConfig
from rl_core.digests import digest_of
from rl_core.evaluation.items import Mode
from rl_core.files import read_utf8
from rl_core.sources.columns import Columns
from rl_core.sources.hub import HubSource
from rl_core.user_code.text import parse

OWN_WORDS = "the project's own words, in the published format"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answering:
    """How a response is sampled: greedily at temperature 0, `n` responses to each item, of `max_response_length` tokens
    at most."""

    temperature: float
    top_p: float = 1.0
    n: int = 1
    max_response_length: int

    @property
    def mode(self) -> Mode:
        """Greedy at temperature 0."""
        return "greedy" if self.temperature == 0 else "sampled"


@dataclass(frozen=True, kw_only=True, slots=True)
class Judging:
    """How a response is graded.

    Attributes:
        function: The reward function: a built-in one, or `path/to/file.py:function`.
        code: Modules whose code decides whether a response is right, parser and grader included.
        packages: Distributions that the code calls; their versions count too.
        accuracy_key: The reward component that says whether a response is right.
        rule: In words: which answer is read, what counts as right, over how many items.
    """

    function: str
    kwargs: Mapping[str, float | int | str | bool]
    code: tuple[str, ...]
    packages: tuple[str, ...]
    accuracy_key: str = "accuracy"
    rule: str

    def versions(self) -> dict[str, str]:
        """The installed versions of `packages`."""
        return {package: version(package) for package in self.packages}


@dataclass(frozen=True, kw_only=True, slots=True)
class Protocol:
    """One way to measure a model.

    Attributes:
        name: `<items>-<origin>@<version>`.
        summary: What it measures, and whose protocol it is.
        items: The published items on the hub; None where they are files that a person downloads.
        columns: Columns of a file with the items.
        num_items: How many the published numbers count; None where nothing is published.
        prompt, prompt_origin: Jinja text (variable `content`) around each question, and who wrote it.
        max_prompt_length: In tokens; an item with a longer prompt is left out, and the result says how many.
        min_pixels, max_pixels: Area to which images are scaled before the model's processor sees them.
        categories: Columns by whose values the accuracy is also given.
    """

    name: str
    summary: str
    items: HubSource | None
    columns: Columns
    num_items: int | None
    prompt: str
    prompt_origin: str = OWN_WORDS
    max_prompt_length: int
    min_pixels: int
    max_pixels: int
    answering: Answering
    judging: Judging
    categories: tuple[str, ...] = ()

    def with_prompt(self, path: Path) -> Self:
        """The protocol with the prompt text of a file, such as the published text. Raises OSError, and ValueError when
        it is not UTF-8."""
        text = read_utf8(path)
        origin = f"the text of {path.name}, sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]}"
        return replace(self, prompt=text, prompt_origin=origin)

    def with_samples(self, n: int) -> Self:
        """The protocol with n responses to each item. Raises ValueError for a greedy protocol, whose responses to an
        item would all be equal."""
        if self.answering.mode == "greedy" and n > 1:
            raise ValueError(f"{self.name} answers greedily: {n} responses to an item would all be equal")
        return replace(self, answering=replace(self.answering, n=n))

    def record(self) -> dict[str, Any]:
        """Everything that a result depends on, as JSON values; the digest is made of it."""
        return {
            "name": self.name,
            "prompt": self.prompt.strip(),
            "prompt_origin": self.prompt_origin,
            "max_prompt_length": self.max_prompt_length,
            "min_pixels": self.min_pixels,
            "max_pixels": self.max_pixels,
            "answering": asdict(self.answering),
            "judging": {
                "function": Path(self.judging.function).name,
                "kwargs": dict(self.judging.kwargs),
                "accuracy_key": self.judging.accuracy_key,
                "rule": self.judging.rule,
                "code": code_digest(self.judging.code),
                "versions": self.judging.versions(),
            },
        }

    def digest(self) -> str:
        """Digest of `record`. Two results may be compared when their digests are equal."""
        return digest_of(self.record())

    def reward_config(self) -> RewardConfig:
        """The config of the reward that grades the responses."""
        return RewardConfig(function=self.judging.function, kwargs=dict(self.judging.kwargs))

    def evaluation_config(self) -> EvaluationConfig:
        """The config of evaluate_prompts."""
        answering = self.answering
        return EvaluationConfig(
            n=answering.n,
            temperature=answering.temperature,
            top_p=answering.top_p,
            modes=(answering.mode,),
            accuracy_key=self.judging.accuracy_key,
            categories=self.categories,
        )


def code_digest(modules: tuple[str, ...]) -> str:
    """The first 12 hexadecimal digits of a SHA-256 over the code of the modules, without comments, docstrings and
    layout. The modules are read, not imported."""
    return hashlib.sha256("\0".join(_read(name) for name in modules).encode()).hexdigest()[:12]


def _read(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None, f"{module} is a module of this project"
    return _what_it_does(parse(Path(spec.origin).read_text(encoding="utf-8")))


def _what_it_does(tree: ast.Module) -> str:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [statement for statement in node.body if not _is_text(statement)] or [ast.Pass()]
    return ast.unparse(tree)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
