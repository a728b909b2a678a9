import hashlib
import pickle

import pytest

from rl_core.data.images import ImageStore, ImageStoreWriter, image_uid, source_uid
from tests.rl_core.data.samples import png_bytes

RED, BLUE = png_bytes(colour=(250, 0, 0)), png_bytes(colour=(0, 0, 250))


def write(path, *items):
    with ImageStoreWriter(path) as writer:
        return [writer.add(item) for item in items]


def test_an_image_comes_back_by_its_uid(tmp_path):
    red, blue = write(tmp_path / "images.arrow", RED, BLUE)
    store = ImageStore(tmp_path / "images.arrow")
    assert store.encoded(red) == RED
    assert store.image(blue).getpixel((0, 0)) == (0, 0, 250)
    assert store.image(blue).mode == "RGB"
    assert red == image_uid(RED) == hashlib.sha256(RED).hexdigest()[:16]


def test_the_same_image_is_stored_once(tmp_path):
    first, second, third = write(tmp_path / "images.arrow", RED, BLUE, RED)
    store = ImageStore(tmp_path / "images.arrow")
    assert first == third != second
    assert len(store) == 2
    assert first in store
    assert "0" * 16 not in store


def test_pictures_with_equal_small_copies_keep_their_own_sources(tmp_path):
    """A small copy of a page of text is grey whatever the page says."""
    pages = [png_bytes((9, 9), colour=(n, 0, 0)) for n in range(2)]
    with ImageStoreWriter(tmp_path / "images.arrow") as writer:
        uids = [writer.add(RED, source=page) for page in (*pages, pages[0])]
        alone = writer.add(RED)
    assert uids[0] == uids[2] != uids[1] and alone == image_uid(RED)
    store = ImageStore(tmp_path / "images.arrow")
    assert [store.encoded(uid) for uid in uids] == [RED] * 3
    assert [store.encoded(source_uid(uid)) for uid in uids] == [*pages, pages[0]]


def test_many_batches_read_like_one(tmp_path, monkeypatch):
    monkeypatch.setattr("rl_core.data.images._BATCH_BYTES", 100)
    items = [png_bytes(colour=(n, 0, 0)) for n in range(9)]
    uids = write(tmp_path / "images.arrow", *items)
    store = ImageStore(tmp_path / "images.arrow")
    assert [store.encoded(uid) for uid in uids] == items


def test_a_store_crosses_processes_as_its_path(tmp_path):
    (red,) = write(tmp_path / "images.arrow", RED)
    pickled = pickle.dumps(ImageStore(tmp_path / "images.arrow"))
    assert len(pickled) < 300
    assert pickle.loads(pickled).encoded(red) == RED


def test_unknown_uids_and_broken_files_are_named(tmp_path):
    write(tmp_path / "images.arrow", RED)
    with pytest.raises(KeyError, match="no image 1234"):
        ImageStore(tmp_path / "images.arrow").encoded("1234")
    (tmp_path / "cut.arrow").write_bytes((tmp_path / "images.arrow").read_bytes()[:-20])
    for name in ("cut.arrow", "nothing.arrow"):
        with pytest.raises(ValueError, match=f"{name} is no readable image store"):
            ImageStore(tmp_path / name)
