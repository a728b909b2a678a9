"""YAML as people write it into configs: data alone, and every key of a mapping once."""

from collections.abc import Iterator
from typing import Any

import yaml

_MERGE_TAG = "tag:yaml.org,2002:merge"


class NotYaml(ValueError):
    """The text is no valid YAML. The message says where and why; it repeats no line, for that may hold a secret."""


def parse_yaml(text: str) -> Any:
    """The value that a text stands for. Raises NotYaml, for a key that stands twice in one mapping too."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        raise NotYaml(f"{_place(error.problem_mark)}{error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise NotYaml(f"line {line}: the character U+{error.character:04X} is not allowed") from None


def _place(mark: yaml.Mark | None) -> str:
    return "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "


class _Loader(yaml.SafeLoader):
    """PyYAML takes the last of equal keys and says nothing. They are looked for before `<<` is resolved, which a key
    beside it may repeat: that is what a merge is for."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        first: dict[tuple[str, str], yaml.Node] = {}
        for key in _written_keys(node):
            earlier = first.setdefault((key.tag, key.value), key)
            if earlier is not key:
                problem = f"the key `{key.value}` stands twice, first in line {earlier.start_mark.line + 1}; keep one"
                raise yaml.composer.ComposerError(None, None, problem, key.start_mark)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError as error:  # a date such as 2026-02-30, of which PyYAML says neither the line nor the file
            raise yaml.constructor.ConstructorError(None, None, f"{error}", node.start_mark) from None


def _written_keys(node: yaml.MappingNode) -> Iterator[yaml.ScalarNode]:
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE_TAG:
            yield key
