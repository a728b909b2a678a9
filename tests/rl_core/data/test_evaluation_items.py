from pathlib import Path

import pytest

from rl_core.data.chat import ChatRenderer
from rl_core.data.images import ImageStore, ImageStoreWriter
from rl_core.data.prompts import PromptTemplate
from rl_core.data.row_preparation import Limits, render_items
from rl_core.progress import SilentProgress
from rl_core.sources.columns import Columns
from rl_core.sources.local import LocalSource

LIMITS = Limits(max_prompt_length=200, min_pixels=1, max_pixels=10_000)


def render(tiny_folder, source: LocalSource, store: Path):
    template = PromptTemplate("{{ content }} Think first.")
    renderer = ChatRenderer(tiny_folder("qwen2_5_vl"), prompt_template=template, system_prompt=None)
    with ImageStoreWriter(store) as images:
        return render_items(source, renderer, limits=LIMITS, images=images, progress=SilentProgress())


def test_items_become_prompts_and_those_that_cannot_are_named(tiny_folder, write_jsonl, write_image, tmp_path):
    """In the columns of R1-V's files: an image's path, a question without a place for it, a number as the truth."""
    write_image("0.png")
    path = write_jsonl(
        [
            {"image_path": "0.png", "question": "How many?", "ground_truth": 3},
            {"image_path": "1.png", "question": "How many?", "ground_truth": 4},
        ]
    )
    columns = Columns(prompt_key="question", image_key="image_path", images_first=True, answer_key="ground_truth")
    rendered = render(tiny_folder, LocalSource(type="local", path=str(path), columns=columns), tmp_path / "i.arrow")
    (prompt,) = rendered.prompts
    assert prompt.answer == 3
    assert prompt.text.count("<|image_pad|>") == 1
    assert "How many? Think first." in prompt.text
    assert prompt.image_uids[0] in ImageStore(tmp_path / "i.arrow")
    remark = rendered.remark()
    assert remark is not None and remark.startswith("left out: 1 item(s)") and "1.png" in remark


def test_a_source_without_a_single_item_is_refused(tiny_folder, write_jsonl, tmp_path):
    path = write_jsonl([{"problem": "", "answer": "3"}])
    with pytest.raises(ValueError, match=r"no item of rows can be asked; left out: 1 .*the question is missing"):
        render(tiny_folder, LocalSource(type="local", path=str(path)), tmp_path / "i.arrow")
