"""A strict reader of YAML for configs: it reads data only, every key of a mapping once, and unquoted texts as YAML 1.2
does: `1e-6` and `010` are numbers, and `no`, `1:30` and dates are texts."""

import re
from typing import Any, Final

import yaml

_WIDTH = 100
_MERGE_TAG = "tag:yaml.org,2002:merge"

_CORE: Final = [
    (f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z"))
    for tag, pattern in {
        "null": r"~|null|Null|NULL|",
        "bool": r"true|True|TRUE|false|False|FALSE",
        "int": r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
        "float": r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "merge": r"<<",
    }.items()
]
"""(tag, pattern of the unquoted texts that have it), of which the first that matches counts (YAML 1.2, section
10.3.2)."""


class NotYaml(ValueError):
    """The text is no valid YAML. The message says where and why. It quotes no line, because a line may hold a
    secret."""


def parse_yaml(text: str) -> Any:
    """The value that a text stands for. Raises NotYaml where it is no YAML, or a mapping has a key twice."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        raise NotYaml(f"{place}{error.problem or error.context}") from None
    except RecursionError:
        raise NotYaml("lists and mappings are nested too deeply") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise NotYaml(f"line {line}: the character U+{error.character:04X} is not allowed") from None


def dump_yaml(value: Any) -> str:
    """YAML that `parse_yaml` reads as an equal value: None, booleans, numbers, texts, and lists and mappings of
    them."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)


class _Loader(yaml.SafeLoader):
    """Refuses a mapping with equal keys, of which PyYAML would silently take the last. They are looked for before `<<`
    is resolved: a key beside `<<` may repeat a merged one, because that is what a merge is for."""

    yaml_implicit_resolvers = {None: _CORE}  # whatever the first character is

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

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        text = self.construct_scalar(node)
        return int(text, 0) if text.startswith(("0o", "0x")) else int(text)


class _Dumper(yaml.SafeDumper):
    """Quotes every text that a reader of YAML 1.1 or 1.2 would not read as text, and writes no anchors."""

    yaml_implicit_resolvers = yaml.SafeDumper.yaml_implicit_resolvers | {None: _CORE}

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Escapes the line ends of Unicode, which PyYAML would write as they are and read back as spaces."""
        style = '"' if any(character in text for character in "\x85\u2028\u2029\ufeff") else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
