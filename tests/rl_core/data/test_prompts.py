import pytest

from rl_core.data.prompts import PromptTemplate, chat_content, corpus
from tests.rl_core.data.samples import counting, data_config


def test_a_template_wraps_the_question():
    assert PromptTemplate(" {{ content }} Think first.\n").render("Why?") == "Why? Think first."
    assert PromptTemplate().render("Why?") == "Why?"


def test_a_template_shows_the_columns_of_the_row():
    lines = "{% for letter, text in options.items() %}{{ letter }}. {{ text }}\n{% endfor %}"
    template = PromptTemplate("{{ content }}\n" + lines + "({{ hint }}, {{ row['the level'] }})")
    values = {"options": {"A": "cat", "B": "dog"}, "hint": "barks", "the level": 3, "self": 1}
    assert template.render("Which?", values) == "Which?\nA. cat\nB. dog\n(barks, 3)"
    assert template.columns == {"options", "hint", "row"}
    with pytest.raises(ValueError, match="cannot be rendered: 'options' is undefined"):
        template.render("Which?", {"hint": "barks"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no variable", "does not show the question: write {{ content }}"),
        ("{{ question }}", "does not show the question"),
        ("{{ content ", "not valid Jinja, line 1"),
        ("{{ content }} {{ content }}", "show `content` once"),
        ("<image> {{ content }}", "add no <image>"),
        ("{{ content | upper }}", "unchanged"),
    ],
)
def test_a_wrong_template_is_refused(text, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        PromptTemplate(text)
    (tmp_path / "t.jinja").write_text(text)
    with pytest.raises(ValueError, match=r"data.prompt_template .*t.jinja: "):
        PromptTemplate.load(str(tmp_path / "t.jinja"))


def test_a_missing_template_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"nothing.jinja cannot be read"):
        PromptTemplate.load(str(tmp_path / "nothing.jinja"))


def test_content_splits_at_image_places():
    image = {"type": "image"}
    assert chat_content("plain") == "plain"
    assert chat_content("<image>Why?") == [image, {"type": "text", "text": "Why?"}]
    assert chat_content("<video><image>?") == [{"type": "video"}, image, {"type": "text", "text": "?"}]
    assert chat_content("a <image><image> b") == [
        {"type": "text", "text": "a "},
        image,
        image,
        {"type": "text", "text": " b"},
    ]


def test_the_corpus_is_what_the_model_will_read_and_write(tmp_path):
    (tmp_path / "t.jinja").write_text("{{ content }} Answer!")
    data = data_config(train=counting(3), prompt_template=str(tmp_path / "t.jinja"), system_prompt="Be brief.")
    texts = list(corpus(data, ["<answer>"]))
    assert texts[:2] == ["Be brief.", "How many objects are there? Answer!"]
    assert texts[-1] == "<answer>"
    assert len(texts) == 2 + 2 * 3
