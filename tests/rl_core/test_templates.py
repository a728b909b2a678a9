"""Whatever a template says, it is a text or a sentence, soon."""

import signal

import pytest

from rl_core.templates import TextTemplate, check_chat_template, target_template

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
        ("{% include 'prompt.jinja' %}", "uses another template in line 1"),
        ("\n{% extends content %}", "uses another template in line 2"),
        ("{{ " + "(" * 5000 + "content" + ")" * 5000 + " }}", "nested too deeply"),
    ],
)
def test_a_text_that_is_no_template_is_named(source, why):
    with pytest.raises(ValueError, match=f"prompt.jinja .*{why}"):
        TextTemplate(source, name="prompt.jinja", variables=("content",))


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (LOOPS, "takes more than 2 seconds"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "maximum recursion depth"),
    ],
)
def test_an_endless_template_is_ended(source, why):
    with pytest.raises(ValueError, match=f"prompt.jinja cannot be rendered: .*{why}"):
        rendered(source)


def test_a_time_limit_leaves_the_timer_of_the_process_as_it_was():
    def mine(*_): ...

    handler, timer = signal.signal(signal.SIGALRM, mine), signal.setitimer(signal.ITIMER_REAL, 60)
    try:
        assert rendered("{{ content }}") == "text"
        assert signal.getsignal(signal.SIGALRM) is mine
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


@pytest.mark.parametrize("source", ["{{ content / 2 }}", "{{ content.nothing }}", "{{ 1 / 0 }}"])
def test_a_template_that_does_not_fit_a_value_is_refused_for_that_value(source):
    with pytest.raises(ValueError, match=r"prompt\.jinja cannot be rendered: "):
        rendered(source)


def test_a_template_of_answers_may_want_answers_of_another_form():
    assert target_template("{{ answer.x }}").used == {"answer"}
    with pytest.raises(ValueError, match=r"cold_start\.target_template names the unknown variable content"):
        target_template("{{ content }}")


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% break %}{% endfor %}",
        "{{ bos_token }}{{ strftime_now('%Y') }}{{ messages | tojson(indent=2) }}{{ tools }}",
    ],
)
def test_a_chat_template_may_use_what_transformers_gives_it(source):
    check_chat_template(source)
