"""A strict reader of YAML for configs: it reads data only, every key of a mapping once, and nothing that versions of
YAML understand differently.

Versions 1.1 and 1.2 of YAML disagree about unquoted texts. Here a number may be written as 1e-6, a date is text, and
a text that the two versions read as different values (`010`, `1:30`, `no`) is refused.
"""

import re
from typing import Any, Final

import yaml

_WIDTH = 100
_MERGE_TAG = "tag:yaml.org,2002:merge"
_FLOAT_TAG = "tag:yaml.org,2002:float"
_TIME_TAG = "tag:yaml.org,2002:timestamp"

_AMBIGUOUS: Final = {
    "!leading-zero": (
        re.compile(r"[-+]?0[0-9_]+"),
        "-+0",
        "a number with a leading zero is of base 8 to some readers of YAML and of base 10 to others: leave the zero "
        "out, or write the value in quotes if it is a text",
    ),
    "!base-60": (
        re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"),
        "-+0123456789",
        "digits with a colon are a number of base 60 to some readers of YAML and a text to others: write the number, "
        "or write the value in quotes if it is a text",
    ),
    "!yes-or-no": (
        re.compile(r"yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF"),
        "yYnNoO",
        "yes, no, on and off are true and false to some readers of YAML and texts to others: write true or false, or "
        "write the value in quotes if it is a text",
    ),
}
"""Tag -> pattern of the texts that are read in two ways, the characters that they begin with, and what to do."""

_EXPONENT = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+")


class NotYaml(ValueError):
    """The text is no valid YAML. The message says where and why. It quotes no line, because a line may hold a
    secret."""


def parse_yaml(text: str) -> Any:
    """The value that a text stands for. Raises NotYaml where it is no YAML, or a mapping has a key twice."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        raise NotYaml(f"{_place(error.problem_mark)}{error.problem or error.context}") from None
    except RecursionError:
        raise NotYaml("lists and mappings are nested too deeply") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise NotYaml(f"line {line}: the character U+{error.character:04X} is not allowed") from None


def dump_yaml(value: Any) -> str:
    """YAML that `parse_yaml` reads as an equal value: None, booleans, numbers, texts, and lists and mappings of
    them."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)


def _place(mark: yaml.Mark | None) -> str:
    return "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """First character of an unquoted text -> (tag, pattern) pairs, of which the first pattern that matches decides."""
    resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, (pattern, characters, _) in _AMBIGUOUS.items():
        for character in characters:
            resolvers.setdefault(character, []).append((tag, re.compile(rf"(?:{pattern.pattern})\Z")))
    for character in "-+.0123456789":
        resolvers.setdefault(character, []).append((_FLOAT_TAG, re.compile(rf"(?:{_EXPONENT.pattern})\Z")))
    for character, known in yaml.SafeLoader.yaml_implicit_resolvers.items():
        resolvers.setdefault(character, []).extend(entry for entry in known if entry[0] != _TIME_TAG)
    return resolvers


class _Loader(yaml.SafeLoader):
    """Refuses a mapping with equal keys, of which PyYAML would silently take the last. They are looked for before `<<`
    is resolved: a key beside `<<` may repeat a merged one, because that is what a merge is for."""

    yaml_implicit_resolvers = _resolvers()

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        first: dict[tuple[str, str], yaml.Node] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE_TAG:
                continue
            earlier = first.setdefault((key.tag, key.value), key)
            if earlier is not key:
                problem = f"the key `{key.value}` stands twice, first in line {earlier.start_mark.line + 1}; keep one"
                raise yaml.composer.ComposerError(None, None, problem, key.start_mark)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError as error:  # such as `!!int one`; PyYAML names neither line nor file
            raise yaml.constructor.ConstructorError(None, None, f"{error}", node.start_mark) from None

    def refuse_ambiguous(self, node: yaml.Node) -> Any:
        """Raises ConstructorError for a text with a tag of `_AMBIGUOUS`."""
        raise yaml.constructor.ConstructorError(None, None, _AMBIGUOUS[node.tag][2], node.start_mark)


class _Dumper(yaml.SafeDumper):
    """Quotes every text that `_Loader` would not read as text, and writes no anchors."""

    yaml_implicit_resolvers = _resolvers()

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Escapes the line ends of Unicode, which PyYAML would write as they are and read back as spaces."""
        style = '"' if any(character in text for character in "\x85\u2028\u2029\ufeff") else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)
for _tag in _AMBIGUOUS:
    _Loader.add_constructor(_tag, _Loader.refuse_ambiguous)
