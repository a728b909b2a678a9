import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rl_core.config.yaml_text import NotYaml, parse_yaml


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3, column 1: the key `a` stands twice, first in line 1; keep one"),
        ("a: {b: 1, c: 2, b: 1}\n", "line 1, column 17: the key `b`"),
        ("a:\n- {b: 1}\n- b: 1\n  'b': 1\n", "line 4, column 3: the key `b`"),
        ("1: a\n1: b\n", "the key `1`"),
        ("a: 2026-02-30\n", "line 1, column 4: day is out of range for month"),
        ("a: !!int one\n", "line 1, column 4: invalid literal"),
        ("a: b: c\n", "line 1, column 5: mapping values are not allowed here"),
        ("a: *b\n", "line 1, column 4: found undefined alias 'b'"),
        ("{[1]: 2}\n", "line 1, column 2: found unhashable key"),
        ("a\nb\0\n", r"line 2: the character U\+0000 is not allowed"),
        ("a: 1\n---\nb: 2\n", "line 2, column 1: but found another document"),
    ],
)
def test_what_is_no_yaml_is_named_with_its_place(text: str, place: str) -> None:
    with pytest.raises(NotYaml, match=place):
        parse_yaml(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\n", {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 2}}),
        (
            "a: &a {x: 1}\nb: &b {y: 2}\nc: {<<: [*a, *b], y: 3}\n",
            {"a": {"x": 1}, "b": {"y": 2}, "c": {"x": 1, "y": 3}},
        ),
        # A mapping that is merged before it is made itself is written out twice by then.
        (
            "a: &a {x: 1}\nb: {c: &c {<<: *a, x: 2}}\nd: {<<: *c, x: 4}\n",
            {"a": {"x": 1}, "b": {"c": {"x": 2}}, "d": {"x": 4}},
        ),
        ("a: {x: 1}\nb: {x: 1}\n", {"a": {"x": 1}, "b": {"x": 1}}),
        ("1: a\n'1': b\n", {1: "a", "1": "b"}),
        ("\ufeffa: 1\n", {"a": 1}),
    ],
)
def test_a_key_may_stand_again_elsewhere_and_beside_a_merge(text: str, value: object) -> None:
    assert parse_yaml(text) == value


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_what_has_no_repeated_key_is_read_as_ever(value: object) -> None:
    text = yaml.safe_dump(value)
    assert parse_yaml(text) == yaml.safe_load(text) == value
