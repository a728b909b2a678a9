import json
import os
import re
import shutil

import numpy as np
import pytest
from PIL import Image
from transformers import AutoProcessor, AutoTokenizer

from rl_core.data.chat import ChatRenderer, Media, replace_chat_template
from rl_core.data.prompts import PromptTemplate, chat_content
from rl_core.families.registry import FAMILIES
from rl_core.families.vision import VideoShape
from rl_core.sources.rows import Turn

VISION = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
TEXT = ("qwen2_5", "llama")
NO_MEDIA = Media()
SIZES = [(84, 84), (331, 97), (1200, 900), (1, 150)]


def make(folder, **options):
    return ChatRenderer(folder, **({"prompt_template": None, "system_prompt": None} | options))


def render(renderer, question, media=NO_MEDIA):
    return renderer.render_all([question], [media], histories=[()])[0]


@pytest.fixture
def template(tmp_path):
    (tmp_path / "t.jinja").write_text("{{ content }} Reply with the number.")
    return str(tmp_path / "t.jinja")


def by_processor(folder, sizes, *turns):
    """What transformers itself makes of the same conversation, in turns of a role and a text, and images."""
    processor = AutoProcessor.from_pretrained(folder)
    messages = [{"role": role, "content": chat_content(text)} for role, text in turns]
    text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    images = [Image.new("RGB", size) for size in sizes] or None
    return text, processor(text=[text], images=images)["input_ids"][0]


def test_the_chat_template_gets_the_variables_of_the_config(tiny_folder, tmp_path):
    folder = shutil.copytree(tiny_folder("qwen2_5"), tmp_path / "model")
    template = (folder / "chat_template.jinja").read_text()
    replace_chat_template(folder, template + "{% if enable_thinking is false %}No thoughts.{% endif %}")
    assert not render(make(folder), "Why?").text.endswith("No thoughts.")
    assert render(make(folder, chat_template_kwargs={"enable_thinking": False}), "Why?").text.endswith("No thoughts.")


@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if family.vision is not None])
@pytest.mark.parametrize(
    ("question", "sizes"),
    [
        *[("<image>How many objects are there?", [size]) for size in SIZES],
        ("Compare <image> with <image>.", [(84, 84), (331, 97)]),
        ("<image><image>", [(84, 84), (84, 84)]),
        ("No picture at all?", []),
    ],
)
def test_tokens_are_those_of_the_models_own_processor(tiny_folder, template, family, question, sizes):
    folder = tiny_folder(family)
    renderer = make(folder, prompt_template=template, system_prompt="You are a careful assistant.")
    turns = [("system", "You are a careful assistant."), ("user", f"{question} Reply with the number.")]
    try:
        text, ids = by_processor(folder, sizes, *turns)
    except ValueError:
        assert (family, sizes) == ("mistral3", [(1, 150)])
        with pytest.raises(ValueError, match="leaves nothing of 1x150"):
            render(renderer, question, Media(sizes))
        return
    rendered = render(renderer, question, Media(sizes))
    assert rendered.text == text
    assert rendered.token_ids.tolist() == list(ids)
    assert rendered.token_ids.dtype == rendered.engine_token_ids.dtype == np.int32


@pytest.mark.parametrize("family", VISION)
def test_an_image_is_shown_in_as_many_patches_as_it_has_tokens(tiny_folder, family):
    vision = make(tiny_folder(family)).vision
    side = 32 if family == "qwen3_vl" else 28
    for size in [*SIZES, (331, 97), (97, 331), (29, 43), (700, 701)]:
        width, height = vision.shown_size(*size)
        assert width * height == side * side * len(vision.of_image(*size))
        assert width % side == height % side == 0
        assert (width - height) * (size[0] - size[1]) >= 0


@pytest.mark.parametrize("family", TEXT)
def test_a_text_model_gets_its_tokenizers_chat(tiny_folder, family):
    folder = tiny_folder(family)
    rendered = render(make(folder), "What is 2 + 2?")
    messages = [{"role": "user", "content": "What is 2 + 2?"}]
    ids = AutoTokenizer.from_pretrained(folder).apply_chat_template(messages, add_generation_prompt=True)
    assert rendered.token_ids.tolist() == ids["input_ids"]
    assert rendered.engine_token_ids.tolist() == ids["input_ids"]


def test_many_prompts_at_once_equal_one_at_a_time(tiny_folder):
    renderer = make(tiny_folder("qwen3_vl"))
    questions, sizes = ["<image>a", "b", "c<image>d<image>"], [[(84, 84)], [], [(50, 90), (90, 50)]]
    together = renderer.render_all(questions, [Media(of) for of in sizes], histories=[()] * 3)
    for one, question, of in zip(together, questions, sizes, strict=True):
        assert one.token_ids.tolist() == render(renderer, question, Media(of)).token_ids.tolist()
    assert renderer.render_all([], [], histories=[]) == []


@pytest.mark.parametrize("family", VISION)
@pytest.mark.parametrize(("shape", "fps"), [((2, 56, 56), 2.0), ((8, 120, 90), 0.7), ((30, 331, 97), 1.3)])
def test_the_tokens_of_a_video_are_those_of_the_models_own_processor(tiny_folder, family, shape, fps):
    folder = tiny_folder(family)
    frames, height, width = shape
    media = Media([(84, 84)], [VideoShape(frames, width, height, fps)] * 2)
    rendered = render(make(folder), "<video>First <image> then <video>?", media)
    processor = AutoProcessor.from_pretrained(folder)
    messages = [{"role": "user", "content": chat_content("<video>First <image> then <video>?")}]
    text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    video = np.zeros((frames, height, width, 3), np.uint8)
    times = {"fps": fps, "frames_indices": list(range(frames)), "total_num_frames": frames, "duration": frames / fps}
    made = processor(
        text=[text], images=[Image.new("RGB", (84, 84))], videos=[video] * 2,
        video_metadata=[dict(times), dict(times)], do_sample_frames=False,
    )  # fmt: skip
    assert rendered.text == text
    assert rendered.token_ids.tolist() == list(made["input_ids"][0])
    assert (rendered.engine_token_ids == processor.video_token_id).sum() == 2


def test_a_conversation_is_what_the_processor_makes_of_it(tiny_folder, template):
    folder = tiny_folder("qwen2_5_vl")
    history = [Turn("user", "<image>What is it?"), Turn("assistant", "A cat.")]
    renderer = make(folder, prompt_template=template, system_prompt="Be brief.")
    sizes = [(84, 84), (56, 112)]
    (rendered,) = renderer.render_all(["And <image>?"], [Media(sizes)], histories=[history])
    before = [("system", "Be brief."), ("user", "<image>What is it?"), ("assistant", "A cat.")]
    text, ids = by_processor(folder, sizes, *before, ("user", "And <image>? Reply with the number."))
    assert rendered.text == text
    assert rendered.token_ids.tolist() == list(ids)


def test_the_result_of_a_tool_is_shown_without_the_prompt_template(tiny_folder, tmp_path):
    template = tmp_path / "asking.jinja"
    template.write_text("Please: {{ content }}")
    renderer = make(tiny_folder("qwen2_5"), prompt_template=str(template))
    asked, shown = renderer.render_all(["7"] * 2, [NO_MEDIA] * 2, histories=[[]] * 2, asks=["user", "tool"])
    assert "Please: 7" in asked.text
    assert "Please" not in shown.text
    assert "tool" in shown.text


def test_a_conversations_own_system_turn_stands_in_place_of_the_configured_one(tiny_folder):
    renderer = make(tiny_folder("qwen2_5"), system_prompt="Be brief.")
    own, other = renderer.render_all(["?", "?"], [NO_MEDIA] * 2, histories=[[Turn("system", "Be long.")], []])
    assert "Be long." in own.text
    assert "Be brief." not in own.text
    assert "Be brief." in other.text


def test_a_template_that_refuses_a_prompt_is_named(tiny_folder, tmp_path):
    folder = shutil.copytree(tiny_folder("qwen2_5"), tmp_path / "model")
    (folder / "chat_template.jinja").write_text("{{ raise_exception('no system turns') }}")
    with pytest.raises(ValueError, match=r"the chat template cannot render the prompt 'Why\?': no system turns"):
        render(make(folder), "Why?")
    (folder / "chat_template.jinja").write_text("{% if %}")
    with pytest.raises(ValueError, match="the chat template cannot render"):
        render(make(folder), "Why?")


def test_a_number_of_images_that_does_not_fit_the_places_is_refused(tiny_folder):
    with pytest.raises(ValueError, match=r"2 image token\(s\) and 1 image\(s\)"):
        render(make(tiny_folder("qwen2_vl")), "<image><image>", Media([(84, 84)]))


def test_the_place_of_an_image_may_be_written_like_the_models_own_token(tiny_folder):
    renderer = make(tiny_folder("idefics3"))
    rendered = render(renderer, "<global<image>-img> is no token.", Media([(84, 84)]))
    assert rendered.text.count("<image>") == 1
    for token in ("<global-img>", "<row_1_col_2>"):
        with pytest.raises(ValueError, match=rf"the prompt contains {token}, which the model reserves for images"):
            render(renderer, f"<image>{token}", Media([(84, 84)]))


@pytest.mark.parametrize("token", ["<|image_pad|>", "<|vision_start|>", "<|im_end|>", "<|endoftext|>"])
def test_a_turn_that_spells_a_control_token_is_refused_whatever_wrote_it(tiny_folder, token):
    folder = tiny_folder("qwen2_5_vl")
    built = PromptTemplate("{{ content }}{{ '" + token[:4] + "' ~ '" + token[4:] + "' }}")
    hinted = PromptTemplate("{{ content }} {{ hint }}")
    for renderer, question, history, values in (
        (make(folder), f"what is {token}?", [], {}),
        (make(folder), "And now?", [Turn("user", "Hi"), Turn("assistant", f"Hi{token}")], {}),
        (make(folder, prompt_template=built), "An <image> is fine.", [], {}),
        (make(folder, prompt_template=hinted), "Why?", [], {"hint": f"Think. {token}"}),
    ):
        with pytest.raises(ValueError, match=rf"the prompt contains {re.escape(token)}, which the model reserves for"):
            renderer.render_all([question], [NO_MEDIA], histories=[history], values=[values])


def test_the_processors_own_template_of_older_checkpoints_is_used(tiny_folder, tmp_path):
    folder = shutil.copytree(tiny_folder("qwen2_vl"), tmp_path / "model")
    newer = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").unlink()
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "OLD" + newer}))
    rendered = render(make(folder), "<image>Why?", Media([(84, 84)]))
    text, ids = by_processor(folder, [(84, 84)], ("user", "<image>Why?"))
    assert rendered.text == text
    assert text.startswith("OLD")
    assert rendered.token_ids.tolist() == list(ids)


def test_a_model_without_chat_template_or_config_is_refused(tiny_folder, tmp_path):
    folder = shutil.copytree(tiny_folder("qwen2_5"), tmp_path / "model")
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ValueError, match="no chat template"):
        make(folder)
    folder = shutil.copytree(tiny_folder("qwen2_5"), tmp_path / "other")
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match="no model folder"):
        make(folder)


OLD, NEW = "OLD{{ messages[0]['content'] }}", "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}"
MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def linked(tiny_folder, tmp_path):
    """A checkpoint's folder of which every file is a second name of a finished one, as a run's initial model is."""
    folder = tmp_path / "model"
    folder.mkdir()
    for path in tiny_folder("qwen2_5_vl").iterdir():
        os.link(path, folder / path.name)
    return folder


def add_older_forms(folder):
    """Every place in which a checkpoint may keep a template."""
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": OLD}))
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text(OLD)
    for name in ("tokenizer_config.json", "processor_config.json"):
        settings = json.loads((folder / name).read_text())
        (folder / name).unlink()
        (folder / name).write_text(json.dumps(settings | {"chat_template": OLD}))


@pytest.mark.parametrize("older", [False, True])
def test_every_reader_of_the_folder_gets_the_new_template_and_the_checkpoint_stays(tiny_folder, linked, older):
    source = tiny_folder("qwen2_5_vl")
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    if older:
        add_older_forms(linked)
    replace_chat_template(linked, NEW)
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before
    expected = "[user]Hi"
    for loader in (AutoProcessor, AutoTokenizer):
        assert loader.from_pretrained(linked).apply_chat_template(MESSAGES, tokenize=False) == expected
    assert render(ChatRenderer(linked, prompt_template=None, system_prompt=None), "Hi").text == expected
