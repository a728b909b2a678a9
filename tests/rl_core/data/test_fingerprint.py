import os

import pytest

from rl_core.data.manifest import preparation_fingerprint
from rl_core.sources.columns import Columns
from rl_core.sources.hub import HubSource
from rl_core.sources.mixture import MixtureSource
from tests.rl_core.data.samples import counting, data_config, local, png_bytes

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def illustrated(write_jsonl, write_image):
    """Two rows, one image each."""
    for name in ("a.png", "b.png"):
        write_image(name)
    return write_jsonl([{"problem": "<image>?", "answer": "1", "images": [name]} for name in ("a.png", "b.png")])


def rewrite(path, data):
    """Write a file such that its time of change differs even on a coarse clock."""
    before = path.stat().st_mtime_ns
    path.write_bytes(data)
    os.utime(path, ns=(before + 1_000_000, before + 1_000_000))


def test_one_changed_pixel_of_one_image_changes_the_source(illustrated):
    before = local(illustrated).fingerprint()
    assert local(illustrated).fingerprint() == before
    rewrite(illustrated.with_name("b.png"), png_bytes(colour=(200, 30, 31)))
    assert local(illustrated).fingerprint() != before


def test_a_missing_image_that_appears_changes_the_source(illustrated):
    picture = illustrated.with_name("b.png")
    data = picture.read_bytes()
    picture.unlink()
    without = local(illustrated).fingerprint()
    picture.write_bytes(data)
    assert local(illustrated).fingerprint() != without


def test_a_changed_row_or_setting_changes_the_source(illustrated):
    seen = {local(illustrated).fingerprint(), local(illustrated, limit=1).fingerprint()}
    seen.add(local(illustrated, columns=Columns(images_first=True)).fingerprint())
    rewrite(illustrated, illustrated.read_bytes().replace(b'"1"', b'"2"'))
    seen.add(local(illustrated).fingerprint())
    assert len(seen) == 4


def test_a_moved_source_of_the_same_name_is_the_same(illustrated, tmp_path):
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    for path in (illustrated, illustrated.with_name("a.png"), illustrated.with_name("b.png")):
        (copy / path.name).write_bytes(path.read_bytes())
    assert local(copy / illustrated.name).fingerprint() == local(illustrated).fingerprint()


def test_a_mixture_changes_with_its_parts_and_their_names():
    def mixture(**sources):
        return MixtureSource(type="mixture", sources=sources).fingerprint()

    same = {mixture(a=counting(5), b=counting(6)), mixture(b=counting(6), a=counting(5))}
    others = {mixture(a=counting(5), c=counting(6)), mixture(a=counting(5), b=counting(7)), mixture(a=counting(5))}
    assert len(same) == 1
    assert len(same | others) == 4


def test_a_hub_source_is_its_commit():
    prints = [
        HubSource(type="hub", name=f"owner/name@{split}", revision=commit).fingerprint()
        for split, commit in (("train", COMMIT), ("train", COMMIT[::-1]), ("test", COMMIT))
    ]
    assert len(set(prints)) == 3


def test_a_local_folder_as_hub_source_is_its_content(tmp_path):
    (tmp_path / "train.jsonl").write_text("{}")
    source = HubSource(type="hub", name=f"{tmp_path}@train")
    before = source.fingerprint()
    rewrite(tmp_path / "train.jsonl", b"[]")
    assert source.fingerprint() != before


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("tokenizer.json", "chat_template.jinja", "processor_config.json", "config.json", "model.safetensors"):
        (folder / name).write_text(name)
    return folder


def test_preparation_depends_on_what_shapes_a_row_and_on_nothing_else(model, tmp_path):
    def of(cold_start_source=None, tools=(), held_out_tools=(), max_result_pixels=None, **options):
        return preparation_fingerprint(
            data_config(**options),
            model_folder=model,
            cold_start_source=cold_start_source,
            tools=tools,
            held_out_tools=held_out_tools,
            max_result_pixels=max_result_pixels,
        )

    before = of()
    assert of(rollout_batch_size=2, shuffle=False) == before
    rewrite(model / "model.safetensors", b"other weights")
    assert of() == before

    template = tmp_path / "t.jinja"
    template.write_text("{{ content }}")
    changed = [
        of(train=counting(13)),
        of(validation=counting(6, scene_seed=5)),
        of(tools=[{"type": "function"}], held_out_tools=[{"type": "function"}]),
        of(tools=[{"type": "function"}]),
        of(counting(4)),
        of(max_pixels=5000),
        of(max_result_pixels=5000),
        of(max_prompt_length=100),
        of(system_prompt="Be brief."),
        of(prompt_template=str(template)),
    ]
    rewrite(template, b"{{ content }}!")
    changed.append(of(prompt_template=str(template)))
    for name in ("tokenizer.json", "chat_template.jinja", "processor_config.json"):
        rewrite(model / name, b"other")
        changed.append(of())
    assert len({before, *changed}) == 1 + len(changed)
