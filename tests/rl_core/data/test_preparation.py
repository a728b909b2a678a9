import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from rl_core.config.data import CurriculumConfig
from rl_core.data.images import image_uid
from rl_core.data.manifest import DataManifest
from rl_core.data.preparation import prepare_dataset
from rl_core.data.prepared import PreparedDataset, arrange
from rl_core.image_sizes import ImageSizes
from rl_core.progress import SilentProgress
from rl_core.sources.columns import Columns
from rl_core.sources.mixture import MixtureSource
from rl_core.tools.builtin.calculator import calculator
from rl_core.tools.tool import Tool
from tests.rl_core.data.samples import counting, data_config, local, png_bytes, write_video
from tests.samples import SAMPLES


@pytest.fixture
def prepare(tiny_folder, tmp_path):
    def run(
        *,
        family="qwen2_5_vl",
        cold_start_source=None,
        tools=(),
        held_out_tools=(),
        max_result_pixels=None,
        **options,
    ):
        return prepare_dataset(
            data_config(**options),
            model_folder=tiny_folder(family),
            out=tmp_path / "out",
            progress=SilentProgress(),
            cold_start_source=cold_start_source,
            tools=tools,
            held_out_tools=held_out_tools,
            max_result_pixels=max_result_pixels,
        )

    return run


@pytest.fixture
def illustrated(write_jsonl, tmp_path):
    """`illustrated(count, **changes)`: rows with an image each; `changes[number]` replaces fields of a row."""

    def make(count, changes=None):
        rows = []
        for number in range(count):
            (tmp_path / f"{number}.png").write_bytes(png_bytes(colour=(number, 0, 0)))
            row = {"problem": f"<image>Number {number}?", "images": [f"{number}.png"], "answer": number}
            rows.append(row | (changes or {}).get(number, {}))
        return write_jsonl(rows)

    return make


def rejected(folder):
    return [json.loads(line) for line in (folder / "rejected.jsonl").read_text().splitlines()]


def test_rows_images_and_manifest_are_written(prepare, tmp_path):
    manifest = prepare(cold_start_source=counting(5, scene_seed=3))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("train.parquet", "validation.parquet", "cold_start.parquet"),
        *("images.arrow", "rejected.jsonl", "manifest.json"),
    }
    assert {name: split.rows for name, split in manifest.splits.items()} == {
        "train": 12,
        "validation": 6,
        "cold_start": 5,
    }
    assert manifest.images == 23
    assert DataManifest.read(tmp_path / "out") == manifest
    assert [path.name for path in tmp_path.iterdir()] == ["out"]  # no temporary is left


def test_a_prompt_survives_the_disk(prepare, tmp_path, tiny_folder):
    prepare()
    dataset = PreparedDataset.open(tmp_path / "out", "train")
    prompt = dataset[3]
    length = DataManifest.read(tmp_path / "out").splits["train"].prompt_tokens
    assert length.shortest <= len(prompt.token_ids) <= length.longest
    assert len(prompt.token_ids) == len(prompt.engine_token_ids) + 8  # 9 tokens for one placeholder
    assert prompt.text.count("<|image_pad|>") == 1
    assert prompt.answer == str(len(prompt.extra["objects"]))
    (uid,) = prompt.image_uids
    image = dataset.images.image(uid)
    assert image.size == (84, 84)
    assert uid == image_uid(dataset.images.encoded(uid))


TALKS = {
    "the last turn": ([("user", "<image>?"), ("assistant", "look"), ("tool", "<image>")], [False, True]),
    "a turn before": (
        [("user", "<image>?"), ("assistant", "look"), ("tool", "so: <image><image>"), ("user", "And <image>?")],
        [False, True, True, False],
    ),
    "as a user's": (
        [
            ("user", "<image>?"),
            ("assistant", "<tool_call>\n{}\n</tool_call>"),
            ("user", "<image>"),
            ("assistant", "so"),
            ("user", "And <image>?"),
        ],
        [False, True, False],
    ),
    "nowhere": ([("user", "<image>?")], [False]),
}


@pytest.mark.parametrize(("talk", "are_results"), TALKS.values(), ids=TALKS)
@pytest.mark.parametrize(
    ("largest", "shown"), [(3136, (56, 56)), (900, (30, 30)), (10_000, (84, 84)), (None, (28, 28))]
)
def test_pictures_of_tool_results_have_the_size_that_tools_show(
    prepare, write_jsonl, tmp_path, talk, are_results, largest, shown
):
    """Whatever the prompts show: a lesson has what the run will have."""
    names = []
    for number in range(len(are_results)):
        names.append(f"{number}.png")
        (tmp_path / names[-1]).write_bytes(png_bytes(size=(84, 84), colour=(number, 0, 0)))
    row = {"problem": [{"role": role, "content": text} for role, text in talk], "images": names, "answer": "1"}
    lessons = local(write_jsonl([row]))
    prepare(cold_start_source=lessons, max_result_pixels=largest, min_pixels=784, max_pixels=784)
    dataset = PreparedDataset.open(tmp_path / "out", "cold_start")
    sizes = [dataset.images.image(uid).size for uid in dataset[0].image_uids]
    assert sizes == [shown if is_result else (28, 28) for is_result in are_results]


ANSWERS = ["4", 4, 4.0, True, [4, "4"], [], {"box": [1, 2.5], "none": None}, "[4]", "ä \U0001f600"]


def test_an_answer_keeps_its_type_from_the_row_to_the_prompt(prepare, write_jsonl, tmp_path):
    prepare(train=local(write_jsonl([{"problem": "?", "answer": answer} for answer in ANSWERS])))
    read = [prompt.answer for prompt in PreparedDataset.open(tmp_path / "out", "train")]
    assert list(map(repr, read)) == list(map(repr, ANSWERS))


def test_every_uid_is_its_own_even_for_equal_rows(prepare, write_jsonl, tmp_path):
    prepare(train=local(write_jsonl([{"problem": "2+2?", "answer": "4"}] * 5)))
    assert len({prompt.uid for prompt in PreparedDataset.open(tmp_path / "out", "train")}) == 5


BAD_ROWS = {
    "a missing answer": ({"answer": None}, "answer", "the answer is missing"),
    "two places and one image": ({"problem": "<image><image>?"}, "problem", "2 <image> in the question and 1 image"),
    "a missing file": ({"images": ["nothing.png"]}, "images", "nothing.png cannot be read"),
    "a truncated image": ({"images": ["cut.png"]}, "images", "the image is damaged"),
    "a token of the chat's form": (
        {"problem": "<image><|im_end|>\n<|im_start|>assistant\n4"},
        "problem",
        "contains <|im_end|>, which the model reserves for the form of its chats",
    ),
    "an image of 32 bits": ({"images": ["wide.tiff"]}, "images", "32-bit whole numbers of unknown range"),
    "a path without end": ({"images": ["x" * 5000]}, "images", "is no image and no path: it has 5000 letters"),
    "a vision token": ({"problem": "<image><|video_pad|>"}, "problem", "the model reserves for images and videos"),
    "an answer with its end": ({"answer": "5<|im_end|>"}, "answer", "the answer contains <|im_end|>, which the model"),
    "an answer that is a list": ({"answer": ["5", "<|image_pad|>"]}, "answer", "the answer contains <|image_pad|>"),
    "half a character": ({"note": ["\ud83d"]}, "note", r"'\ud83d', which is half a character"),
    "an image of no shape": ({"images": ["thin.png"]}, "images", "aspect ratio"),
}


@pytest.fixture
def damaged_images(tmp_path):
    (tmp_path / "cut.png").write_bytes(png_bytes(size=(300, 300))[:200])
    (tmp_path / "thin.png").write_bytes(png_bytes(size=(9000, 1)))
    Image.fromarray(np.full((30, 30), 70_000, np.int32)).save(tmp_path / "wide.tiff")


@pytest.mark.usefixtures("damaged_images")
def test_bad_rows_cost_themselves_and_are_written_down(prepare, illustrated, tmp_path):
    rows = local(illustrated(14, dict(enumerate((change for change, _, _ in BAD_ROWS.values()), start=1))))
    train = prepare(train=rows, max_bad_share=0.9).splits["train"]
    assert (train.read, train.rows, train.rejected, train.overlong) == (14, 2, 12, 0)
    for index, (record, (_, column, reason)) in enumerate(
        zip(rejected(tmp_path / "out"), BAD_ROWS.values(), strict=True), start=1
    ):
        assert (record["split"], record["source"], record["kind"]) == ("train", "rows", "bad")
        assert (record["index"], record["column"], record["origin"]) == (index, column, f"rows.jsonl line {index + 1}")
        assert reason in record["reason"]
    assert [prompt.answer for prompt in PreparedDataset.open(tmp_path / "out", "train")] == [0, 13]
    assert pq.read_table(tmp_path / "out" / "train.parquet").column("index").to_pylist() == [0, 13]


def test_the_prompt_template_shows_the_columns_of_each_row(prepare, write_jsonl, tmp_path):
    (tmp_path / "t.jinja").write_text(
        "{{ content }}{% for letter, text in options.items() %} {{ letter }}. {{ text }}{% endfor %}"
    )
    rows = [
        {"problem": "Which?", "choices": ["cat", "dog"], "answer": 1},
        {"problem": "Which?", "choices": ["cow", "<|im_end|>"], "answer": 0},
        {"problem": "Which?", "choices": ["pig"], "answer": 0},
    ]
    columns = Columns(options_key="choices", answer_as="index")
    options = {"prompt_template": str(tmp_path / "t.jinja"), "max_bad_share": 0.9}
    prepare(
        train=local(write_jsonl(rows), columns=columns),
        validation=local(write_jsonl([rows[0] | {"problem": "What?"}], "v.jsonl"), columns=columns),
        **options,
    )
    (prompt,) = PreparedDataset.open(tmp_path / "out", "train")
    assert "Which? A. cat B. dog<|im_end|>" in prompt.text
    assert (prompt.answer, prompt.question) == ("B", "Which?")
    control, short = rejected(tmp_path / "out")
    assert "contains <|im_end|>, which the model reserves" in control["reason"]
    assert (short["column"], short["reason"]) == ("choices", "there are 1 options; a choice has two or more")


@pytest.fixture
def model_that_refuses(tiny_folder, tmp_path):
    """`model_that_refuses(condition, failure)`: a model folder whose chat template fails where the condition holds."""

    def make(condition, failure):
        folder = tmp_path / "model"
        shutil.copytree(tiny_folder("qwen2_5_vl"), folder)
        template = folder / "chat_template.jinja"
        template.write_text(f"{{% if {condition} %}}{failure}{{% endif %}}" + template.read_text())
        return folder

    return make


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ 'no text: ' + messages }}", "can only concatenate"),
    ],
)
def test_a_conversation_that_the_chat_template_refuses_costs_its_row(
    model_that_refuses, tmp_path, write_jsonl, failure, reason
):
    twice = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    rows = [{"problem": problem, "answer": "1"} for problem in ("first?", twice, "third?")]
    manifest = prepare_dataset(
        data_config(train=local(write_jsonl(rows)), max_bad_share=0.5),
        model_folder=model_that_refuses("messages | length == 2", failure),
        out=tmp_path / "out",
        progress=SilentProgress(),
    )
    assert (manifest.splits["train"].rows, manifest.splits["train"].rejected) == (2, 1)
    (record,) = rejected(tmp_path / "out")
    assert (record["index"], record["column"], record["origin"]) == (1, "problem", "rows.jsonl line 2")
    assert "the chat template cannot render the prompt 'b'" in record["reason"] and reason in record["reason"]
    prompts = PreparedDataset.open(tmp_path / "out", "train")
    assert ["first?" in prompts[0].text, "third?" in prompts[1].text] == [True, True]


def test_only_the_first_problems_are_spelled_out(prepare, write_jsonl):
    rows = [{"problem": "x", "answer": None}] * 14 + [{"problem": "x", "answer": "1"}]
    with pytest.raises(ValueError, match=r"14 of 15 rows are unusable, more than data.max_bad_share 0.01") as caught:
        prepare(train=local(write_jsonl(rows)))
    assert "  row 0 (rows.jsonl line 1), column 'answer': " in str(caught.value) and "and 4 more" in str(caught.value)
    assert str(caught.value).count("the answer is missing") == 10


def test_problems_of_both_splits_come_together(prepare, write_jsonl):
    bad = local(write_jsonl([{"problem": "x", "answer": None}]))
    with pytest.raises(ValueError, match="cannot be used") as caught:
        prepare(train=bad, validation=bad)
    for part in ("train: 1 of 1", "train: no row is left", "validation: 1 of 1"):
        assert part in str(caught.value)


@pytest.mark.parametrize("max_bad_share", [0.5, 1.0])
def test_a_split_without_a_usable_row_names_each_reason_once(prepare, write_jsonl, max_bad_share):
    blind = {"problem": "<image>?", "images": ["nothing.png"], "answer": "1"}
    rows = [blind, {"problem": "Why? " * 400, "answer": "1"}, blind]
    with pytest.raises(ValueError, match="train: no row is left of 3") as caught:
        prepare(train=local(write_jsonl(rows)), max_bad_share=max_bad_share, max_prompt_length=100)
    message = str(caught.value)
    assert message.count("  row 0 (rows.jsonl line 1), column 'images': ") == 1
    assert message.count("nothing.png cannot be read") == 2
    assert message.count("  row 1 (rows.jsonl line 2), column 'problem': the prompt has") == 1


def test_an_image_in_training_and_validation_is_refused_by_rows(prepare, illustrated):
    rows = local(illustrated(4))
    with pytest.raises(ValueError, match=r"train and validation share 4 image\(s\)") as caught:
        prepare(train=rows, validation=rows)
    uid = image_uid(png_bytes(colour=(2, 0, 0)))
    assert f"image {uid}: train row 2, validation row 2" in str(caught.value)


def test_a_text_prompt_in_training_and_validation_is_refused_by_rows(prepare, write_jsonl):
    rows = local(write_jsonl([{"problem": problem, "answer": 4} for problem in ("2+2?", "1+3?")]))
    held_out = local(write_jsonl([{"problem": problem, "answer": 4} for problem in ("0+4?", "1+3?")], "held_out.jsonl"))
    with pytest.raises(ValueError, match=r"(?s)share 1 prompt\(s\).*1\+3\?.*: train row 1, validation row 1"):
        prepare(family="llama", train=rows, validation=held_out)


def test_held_out_rows_without_tools_are_still_compared_with_training_rows(prepare, write_jsonl, tmp_path):
    given = {"tools": [Tool(calculator).schema], "held_out_tools": []}
    rows = [local(write_jsonl([{"problem": problem, "answer": 4}], f"{problem}.jsonl")) for problem in ("2+2", "1+3")]
    prepare(family="llama", train=rows[0], validation=rows[1], **given)
    (trained,), (held_out,) = (PreparedDataset.open(tmp_path / "out", name) for name in ("train", "validation"))
    assert "calculator" in trained.text and "calculator" not in held_out.text
    with pytest.raises(ValueError, match=r"(?s)share 1 prompt\(s\).*2\+2.*: train row 0, validation row 0"):
        prepare(family="llama", train=rows[0], validation=rows[0], **given)


def mixture(write_jsonl, **kinds):
    """A mixture of text rows: `kinds[name]` of them."""
    rows = {name: [{"problem": f"{name} {n}", "answer": n, "level": n} for n in range(kinds[name])] for name in kinds}
    return MixtureSource(
        type="mixture", sources={name: local(write_jsonl(rows[name], f"{name}.jsonl")) for name in kinds}
    )


def test_a_mixture_is_its_sources_one_after_the_other_under_their_names(prepare, write_jsonl, tmp_path):
    manifest = prepare(family="llama", train=mixture(write_jsonl, a=2, b=3), validation=mixture(write_jsonl, c=1))
    assert manifest.splits["train"].data_sources == {"a": 2, "b": 3}
    dataset = PreparedDataset.open(tmp_path / "out", "train")
    assert [(prompt.data_source, prompt.question) for prompt in dataset] == [
        *(("a", "a 0"), ("a", "a 1")),
        *(("b", "b 0"), ("b", "b 1"), ("b", "b 2")),
    ]


def test_weights_must_name_the_data_sources(prepare, write_jsonl):
    train, held_out = mixture(write_jsonl, a=2, b=3), mixture(write_jsonl, c=1)
    with pytest.raises(ValueError, match=r"\['b'\] have no weight, \['charts'\] are not among the rows"):
        prepare(family="llama", train=train, validation=held_out, source_weights={"a": 1.0, "charts": 2.0})
    prepare(family="llama", train=train, validation=held_out, source_weights={"a": 1.0, "b": 2.0})


def test_a_curriculum_needs_a_number_in_every_training_row(prepare, write_jsonl, tmp_path):
    rows = [{"problem": f"{level}?", "answer": 1, "level": level} for level in (3, "easy", 1.5, 10**400, True, 2**70)]
    held_out = local(write_jsonl([{"problem": "?", "answer": 1}], "held_out.jsonl"))
    options = {"train": local(write_jsonl(rows)), "validation": held_out, "max_bad_share": 0.6}
    data = data_config(**options, curriculum=CurriculumConfig(column="level", descending=True))
    prepare(family="llama", **options, curriculum=data.curriculum)
    word, endless, _ = records = rejected(tmp_path / "out")
    assert [record["column"] for record in records] == ["level"] * 3
    assert [record["origin"] for record in records] == [f"rows.jsonl line {n}" for n in (2, 4, 5)]
    assert "needs a number here and finds 'easy'" in word["reason"]
    assert "needs a number here and finds 1000" in endless["reason"]
    dataset = PreparedDataset.open(tmp_path / "out", "train")
    assert arrange(dataset, data).ranks.tolist() == [-3.0, -1.5, -(2.0**70)]


def test_a_cold_start_on_held_out_scenes_is_refused(prepare):
    with pytest.raises(ValueError, match=r"cold_start and validation share 6 image\(s\)"):
        prepare(cold_start_source=counting(20, scene_seed=2))


HOPELESS = {
    "megabytes of text": ({"problem": "Why? " * 2_000_000}, "10000000 letters, max_prompt_length is 100"),
    "megabytes before it": (
        {"problem": [{"role": "system", "content": "x" * 9_999_999}, {"role": "user", "content": "?"}]},
        "10000000 letters, max_prompt_length is 100",
    ),
    "hundreds of images": (
        {"problem": "<image>" * 500, "images": ["0.png"] * 500},
        "500 images and videos, max_prompt_length is 100",
    ),
}


@pytest.mark.parametrize("name", HOPELESS)
def test_media_that_no_prompt_has_room_for_are_not_opened(prepare, illustrated, tmp_path, name):
    change, reason = HOPELESS[name]
    if "images" not in change:
        change = change | {"images": []}
    prepare(train=local(illustrated(3, {1: change})), max_prompt_length=100)
    (record,) = rejected(tmp_path / "out")
    assert (record["kind"], record["index"]) == ("overlong", 1)
    assert record["reason"] == f"the prompt has {reason}"


def test_a_dropped_prompt_leaves_no_image_behind(prepare, write_jsonl, tmp_path):
    for name, size in (("small", 60), ("large", 600)):
        (tmp_path / f"{name}.png").write_bytes(png_bytes(size=(size, size)))
    rows = [{"problem": "<image>?", "answer": "x", "images": [f"{name}.png"]} for name in ("small", "large")]
    manifest = prepare(train=local(write_jsonl(rows)), max_prompt_length=60)
    assert (manifest.splits["train"].overlong, manifest.splits["train"].images, manifest.images) == (1, 1, 7)


def test_overlong_prompts_can_be_refused(prepare, write_jsonl):
    rows = [{"problem": "Why? " * 400, "answer": "x"}]
    with pytest.raises(ValueError, match=r"1 of 1 prompts are too long; raise data.max_prompt_length") as caught:
        prepare(train=local(write_jsonl(rows)), max_prompt_length=100, overlong="error")
    assert "no row is left of 1" in str(caught.value)
    assert str(caught.value).count("  row 0 ") == 1, "it is named once"


def test_several_images_keep_their_places(prepare, illustrated, tmp_path):
    change = {"problem": "<image>first<image>second", "images": ["1.png", "0.png"]}
    prepare(train=local(illustrated(2, {0: change})))
    dataset = PreparedDataset.open(tmp_path / "out", "train")
    prompt = dataset[0]
    assert dataset.images_per_prompt == 2
    assert prompt.image_uids == tuple(image_uid(png_bytes(colour=(n, 0, 0))) for n in (1, 0))


def test_the_sizes_of_the_picture_and_of_what_the_model_sees_are_known(prepare, illustrated, tmp_path):
    train = local(illustrated(2))
    (tmp_path / "0.png").write_bytes(png_bytes((300, 121)))
    prepare(train=train, max_pixels=10_000)
    wide, square = PreparedDataset.open(tmp_path / "out", "train")
    assert wide.image_sizes == (ImageSizes(original=(300, 121), shown=(168, 56)),)
    assert square.image_sizes == (ImageSizes(original=(60, 60), shown=(56, 56)),)


def test_a_video_is_stored_as_the_frames_that_are_shown(prepare, write_jsonl, tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (30, 64, 96, 3), np.uint8)
    write_video(tmp_path / "a.avi", noise, fps=10)
    (tmp_path / "broken.avi").write_bytes(b"no video")
    rows = [{"problem": "<video>?", "videos": [name], "answer": 1} for name in ("a.avi", "broken.avi")]
    options = {"max_prompt_length": 4000, "max_bad_share": 0.5, "video_fps": 2.0, "min_pixels": 1, "max_pixels": 1024}
    prepare(train=local(write_jsonl(rows)), **options)
    dataset = PreparedDataset.open(tmp_path / "out", "train")
    ((clip,),) = [prompt.videos for prompt in dataset]
    assert (clip.fps, len(clip.frame_uids), dataset.videos_per_prompt) == (2.0, 6, 1)
    assert {dataset.images.image(uid).size for uid in clip.frame_uids} == {(39, 26)}
    (record,) = rejected(tmp_path / "out")
    assert (record["column"], record["kind"]) == ("videos", "bad")
    prepare(train=local(write_jsonl(rows)), **options | {"video_max_frames": 4})
    (shorter,) = PreparedDataset.open(tmp_path / "out", "train")
    assert len(shorter.videos[0].frame_uids) == 4


@pytest.mark.needs_samples("published Geometry3K and CLEVR items become prompts, their images unchanged")
def test_real_geometry3k_and_clevr_items_become_prompts(prepare, tmp_path):
    columns = Columns(image_key="image", images_first=True)
    manifest = prepare(
        family="qwen3_vl",
        train=local(SAMPLES / "geometry3k_samples"),
        validation=local(SAMPLES / "clevr_samples", columns=columns),
        max_pixels=200_000,
        max_prompt_length=1024,
    )
    assert {name: (split.rows, split.rejected) for name, split in manifest.splits.items()} == {
        "train": (10, 0),
        "validation": (8, 0),
    }
    geometry = PreparedDataset.open(tmp_path / "out", "train")[0]
    assert geometry.question.startswith("<image>In $\\odot X, A B=30") and geometry.answer == "80"
    held_out = PreparedDataset.open(tmp_path / "out", "validation")
    clevr = held_out[0]
    assert clevr.question == "<image>How many items are there in the image?"
    assert clevr.answer == "5"
    original = Image.open(SAMPLES / "clevr_samples" / "img1.png").convert("RGB")
    assert held_out.images.image(clevr.image_uids[0]).tobytes() == original.tobytes()


def test_misspelt_keys_and_missing_files_of_both_splits_come_together(prepare, write_jsonl):
    path = write_jsonl([{"problem": "x", "answer": "1"}])
    with pytest.raises(ValueError, match="did you mean 'answer'") as caught:
        prepare(train=local(path, columns=Columns(answer_key="anwser")), validation=local("/nothing.jsonl"))
    assert "validation: data source /nothing.jsonl: no such file or folder" in str(caught.value)


def test_a_text_model_refuses_rows_with_images(prepare, illustrated):
    with pytest.raises(ValueError, match="reads no images"):
        prepare(family="llama", train=local(illustrated(2)))
