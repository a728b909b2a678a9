"""Whatever a template says, it is a text or a sentence, soon."""

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import SandboxedEnvironment

from rl_core.templates import TextTemplate, Unending, check_chat_template, target_template

LOOPS = "{% for a in range(9999) %}" * 4 + "{% endfor %}" * 4


def rendered(source: str, content: str = "text") -> str:
    return TextTemplate(source, name="prompt.jinja", variables=("content",)).render(content=content)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("{{ content", "is not valid Jinja, line 1: unexpected end of template"),
        ("\n\n{% fi %}", "is not valid Jinja, line 3: Encountered unknown tag 'fi'"),
        ("{{ content | nothing }}", "is not valid Jinja, line 1: No filter named 'nothing'"),
        ("{{ contnt }}", "names the unknown variable contnt; there is content"),
        ("{{ b }} {{ a }}", "names the unknown variables a, b"),
        ("{{ lipsum(n=1000000) }}", "names the unknown variable lipsum"),
        ("{% include 'prompt.jinja' %}", "uses another template in line 1"),
        ("\n{% extends content %}", "uses another template in line 2"),
        ("{% import content as other %}", "uses another template in line 1"),
        ("{% from content import other %}", "uses another template in line 1"),
        ("{{ " + "(" * 5000 + "content" + ")" * 5000 + " }}", "nested too deeply"),
        ("{% if content %}" * 3000 + "{% endif %}" * 3000, "nested too deeply"),
        ("{{ content" + " + 'a'" * 5000 + " }}", "nested too deeply"),
        ("x" * 300_000, "has 300000 characters, more than the limit"),
    ],
)
def test_what_is_no_template_is_named(source: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"prompt.jinja .*{why}"):
        TextTemplate(source, name="prompt.jinja", variables=("content",))


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (LOOPS, "has loops that take more than 200000 iterations"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls itself endlessly"),
        ("{% block b %}{{ self.b() }}{% endblock %}", "calls itself endlessly"),
        ("{% for a in content recursive %}{{ loop(content) }}{% endfor %}", "calls itself endlessly"),
        ("{{ 'a' * 10 ** 12 }}", "gives a text of 1000000000000 characters"),
        ("{{ 10 ** (10 ** 10) }}", "gives a text of"),
        (
            "{% set n = namespace(t='ab') %}{% for i in range(60) %}{% set n.t = n.t ~ n.t %}{% endfor %}",
            "gives a text",
        ),
        (
            "{% set n = namespace(t='ab') %}{% for i in range(60) %}{% set n.t = n.t + n.t %}{% endfor %}",
            "gives a text",
        ),
    ],
)
def test_what_would_go_on_for_ever_is_ended(source: str, why: str) -> None:
    with pytest.raises(Unending, match=f"prompt.jinja {why}"):
        rendered(source)
    with pytest.raises(ValueError, match=why):
        check_chat_template(source.replace("content", "'ab'"))


@pytest.mark.parametrize("source", ["{{ content / 2 }}", "{{ content.nothing }}", "{{ content[99] }}", "{{ 1 / 0 }}"])
def test_what_does_not_fit_a_value_is_told_for_that_value(source: str) -> None:
    with pytest.raises(ValueError, match=r"prompt\.jinja cannot be rendered: ") as refusal:
        rendered(source)
    assert not isinstance(refusal.value, Unending)


def test_a_template_can_be_rendered_again_after_one_that_was_ended() -> None:
    template = TextTemplate(
        "{% for a in content %}{% for b in content %}.{% endfor %}{% endfor %}", name="t", variables=("content",)
    )
    with pytest.raises(Unending):
        template.render(content="a" * 1000)
    for _ in range(30):
        assert template.render(content="a" * 100) == "." * 10_000


PIECES = st.sampled_from(
    [
        "{{ content }}", "{{ content ~ '!' ~ 3 }}", "{{ content + content }}", "{{ content | upper }}",
        "{{ 3 * 4 + 2 }}",
        "{% for c in content %}[{{ c }}]{% if not loop.last %}, {% endif %}{% else %}none{% endfor %}",
        "{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{{ twice(content) }}", "{% set a = content * 2 %}{{ a }}",
        "{%- if content is string -%} text {%- endif %}", "{{ [content] * 2 }}", " plain <b> & \n", "{# nothing #}",
        "{% call(x) run(content) %}{{ x }}{% endcall %}{% macro run(y) %}{{ caller(y) }}{% endmacro %}",
    ]
)  # fmt: skip


@given(st.lists(PIECES, max_size=6), st.text(max_size=20))
def test_bounds_change_nothing_of_a_text(pieces: list[str], content: str) -> None:
    source = "".join(pieces)
    plain = SandboxedEnvironment(undefined=jinja2.StrictUndefined)
    try:
        expected = plain.from_string(source).render(content=content)
    except jinja2.UndefinedError:
        return  # a macro that is called before it is written
    assert rendered(source, content) == expected


def test_a_template_of_answers_may_want_answers_of_another_form() -> None:
    assert target_template("{{ answer.x }}").used == {"answer"}
    with pytest.raises(ValueError, match=r"cold_start\.target_template names the unknown variable content"):
        target_template("{{ content }}")
    with pytest.raises(Unending, match=r"cold_start\.target_template has loops"):
        target_template(LOOPS)


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% break %}{% endfor %}",
        "{{ bos_token }}{{ strftime_now('%Y') }}{{ messages | tojson(indent=2) }}{{ tools }}",
        "{{ raise_exception('no system turn') }}",
        "{{ messages[0].content[0].type.nothing }}",
    ],
)
def test_a_chat_template_may_use_what_transformers_gives_it(source: str) -> None:
    check_chat_template(source)


def test_a_chat_template_that_is_no_jinja_is_named() -> None:
    with pytest.raises(ValueError, match="is not valid Jinja, line 1"):
        check_chat_template("{{ messages")
