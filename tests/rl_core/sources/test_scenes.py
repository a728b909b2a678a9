import numpy as np
import pytest

from rl_core.sources.counting import CountingReader
from rl_core.sources.rows import Row
from rl_core.sources.scene_layout import Scene, SceneObject
from rl_core.sources.scenes import render_scene
from tests.rl_core.data.samples import counting


def rendered(source, count):
    scenes = [source.scene(index) for index in range(count)]
    return scenes, [render_scene(scene, image_size=source.image_size).astype(int) for scene in scenes]


def without_objects(scenes, image_size=84):
    bare = [Scene(objects=(), light=scene.light, ground=scene.ground) for scene in scenes]
    return [render_scene(scene, image_size=image_size).astype(int) for scene in bare]


def count_regions(mask):
    """Number of 4-connected regions of at least 12 pixels."""
    left = set(zip(*np.nonzero(mask), strict=True))
    regions = 0
    while left:
        border, size = [left.pop()], 0
        while border:
            y, x = border.pop()
            size += 1
            near = {(y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)} & left
            left -= near
            border += near
        regions += size >= 12
    return regions


def body_mask(image, ground):
    """Coloured or dark pixels: bodies, and neither ground nor shadow."""
    saturation = (image.max(2) - image.min(2)) / np.maximum(image.max(2), 1)
    return (saturation > 0.3) | (image.max(2) < 0.42 * ground.max(2))


def test_every_object_is_a_region_of_its_own_so_a_viewer_can_count_them():
    scenes, images = rendered(counting(), 150)
    masks = [body_mask(image, ground) for image, ground in zip(images, without_objects(scenes), strict=True)]
    right = [count_regions(mask) == len(scene.objects) for mask, scene in zip(masks, scenes, strict=True)]
    assert np.mean(right) > 0.95


def test_objects_keep_apart_and_inside_the_image():
    for index in range(200):
        objects = counting().scene(index).objects
        for number, item in enumerate(objects):
            assert item.radius <= min(item.x, item.y, 1 - item.x, 1 - item.y)
            for other in objects[:number]:
                distance = np.hypot(item.x - other.x, item.y - other.y)
                assert distance > item.radius + other.radius


def test_overlap_stays_within_its_bound_and_does_occur():
    source = counting(max_objects=10, max_overlap=0.5)
    depths = []
    for index in range(100):
        objects = source.scene(index).objects
        for number, item in enumerate(objects):
            for other in objects[:number]:
                distance = np.hypot(item.x - other.x, item.y - other.y)
                depths.append((item.radius + other.radius - distance) / min(item.radius, other.radius))
    assert 0.3 < max(depths) <= 0.5 + 1e-9


def test_counts_and_looks_cover_their_ranges_evenly():
    objects = [counting().scene(index).objects for index in range(600)]
    counts = np.bincount([len(items) for items in objects], minlength=7)
    assert counts[0] == 0
    assert counts[1:].min() > 70  # 100 expected of each
    for look in ("shape", "colour", "material"):
        _, frequency = np.unique([getattr(item, look) for items in objects for item in items], return_counts=True)
        assert frequency.max() < 1.35 * frequency.min()


def test_a_scene_depends_on_seed_and_index_alone():
    assert counting(size=10).scene(7) == counting(size=1000).scene(7)
    assert counting().scene(7) != counting().scene(8)
    assert counting().scene(7) != counting(scene_seed=2).scene(7)


@pytest.mark.parametrize("options", [{}, {"min_objects": 0, "max_objects": 1, "lighting": (1.0, 1.0)}])
def test_two_seeds_share_no_image_not_even_an_empty_one(options):
    pixels = [{image.tobytes() for image in rendered(counting(scene_seed=seed, **options), 300)[1]} for seed in (1, 2)]
    assert len(pixels[0]) == len(pixels[1]) == 300
    assert not pixels[0] & pixels[1]


def test_stronger_light_makes_a_brighter_picture():
    item = SceneObject(shape="sphere", colour="red", material="rubber", x=0.5, y=0.5, radius=0.2, yaw=0.5)
    scenes = [Scene(objects=(item,), light=light, ground=(0.5,) * 6) for light in (0.6, 1.0, 1.4)]
    dim, normal, bright = (render_scene(scene, image_size=84).mean() for scene in scenes)
    assert dim < normal < bright


def test_a_crowd_that_finds_no_room_is_refused_with_what_to_change():
    with pytest.raises(ValueError, match="lower max_objects"):
        counting(min_objects=20, max_objects=20, object_size=(0.2, 0.2)).scene(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_objects": 5, "max_objects": 3}, "min_objects"),
        ({"object_size": (0.2, 0.1)}, "object_size"),
        ({"lighting": (0.0, 1.0)}, "lighting"),
        ({"question": "How many?"}, "does not have exactly one <image>"),
    ],
)
def test_contradicting_options_are_refused(options, message):
    (problem,) = counting(**options).problems()
    assert message in str(problem)


def test_a_row_has_the_question_the_count_and_the_objects():
    rows = list(CountingReader(counting(70, question="<image>Count!")))
    assert [row.index for row in rows] == list(range(70))
    assert all(isinstance(row, Row) and row.question == "<image>Count!" for row in rows)
    assert all(row.answer == str(len(row.extra["objects"])) for row in rows)
    assert rows[0].images[0].size == (84, 84)
