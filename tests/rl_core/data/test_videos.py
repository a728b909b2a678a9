"""Which frames of a video are seen, and that they are its own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.data.videos import frame_indices, read_video
from tests.rl_core.data.samples import write_video


def numbered_frames(count, *, size=(32, 48)):
    """Frames whose gray level is five times their number."""
    levels = np.arange(count, dtype=np.uint8) * 5
    return np.broadcast_to(levels[:, None, None, None], (count, *size, 3)).copy()


@given(
    total=st.integers(1, 5000),
    own_fps=st.floats(1, 120),
    fps=st.floats(0.1, 60),
    max_frames=st.integers(1, 64).map(lambda half: 2 * half),
)
def test_frames_are_an_even_number_at_an_even_pace(total, own_fps, fps, max_frames):
    indices, pace = frame_indices(total, own_fps, fps=fps, max_frames=max_frames)
    assert len(indices) % 2 == 0
    assert 2 <= len(indices) <= max_frames
    assert pace <= min(fps, own_fps) * 1.0001
    assert indices == sorted(indices)
    assert indices[0] == 0
    assert indices[-1] < total
    for number, index in enumerate(indices):
        assert abs(index - number * own_fps / pace) <= max(1.0, 1.01 * own_fps / pace), (
            "no frame stands far off its time"
        )


@pytest.mark.parametrize(
    ("total", "fps", "max_frames", "expected", "pace"),
    [
        (30, 2.0, 8, [0, 5, 10, 15, 20, 25], 2.0),
        (30, 2.0, 4, [0, 8, 15, 23], 4 / 3),
        (30, 60.0, 8, [0, 4, 8, 11, 15, 19, 23, 26], 8 / 3),
        (1, 2.0, 8, [0, 0], 2.0),
        (7, 2.0, 8, [0, 5], 2.0),
    ],
)
def test_examples_at_ten_frames_a_second(total, fps, max_frames, expected, pace):
    indices, found = frame_indices(total, 10.0, fps=fps, max_frames=max_frames)
    assert indices == expected
    assert found == pytest.approx(pace)


@pytest.mark.parametrize("encoded", [False, True])
def test_the_frames_read_are_those_of_the_video(tmp_path, encoded):
    path = tmp_path / "video.avi"
    write_video(path, numbered_frames(40), fps=10)
    frames = read_video(path.read_bytes() if encoded else path, fps=2.0, max_frames=64)
    assert frames.fps == 2.0
    assert frames.images[0].size == (48, 32)
    levels = [np.asarray(image).mean() for image in frames.images]
    assert levels == pytest.approx([5 * number for number in range(0, 40, 5)], abs=2.0)


def test_channels_keep_their_order(tmp_path):
    red = np.zeros((4, 32, 48, 3), np.uint8)
    red[..., 0] = 200
    write_video(tmp_path / "red.avi", red, fps=4)
    (image, _) = read_video(tmp_path / "red.avi", fps=2.0, max_frames=2).images
    means = np.asarray(image).reshape(-1, 3).mean(axis=0)
    assert means[0] > 150 > 50 > means[1:].max()


def test_a_file_that_is_no_video_is_refused(tmp_path):
    (tmp_path / "text.avi").write_text("no video")
    with pytest.raises(ValueError, match="of no known format, or damaged"):
        read_video(tmp_path / "text.avi", fps=2.0, max_frames=8)
    with pytest.raises(ValueError, match=r"the video file .*gone.avi cannot be read: No such file"):
        read_video(tmp_path / "gone.avi", fps=2.0, max_frames=8)


def test_a_video_that_breaks_off_is_refused(tmp_path):
    path = tmp_path / "video.avi"
    write_video(path, np.random.default_rng(0).integers(0, 256, (40, 64, 96, 3), np.uint8), fps=10)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match="damaged"):
        read_video(path, fps=2.0, max_frames=64)
