from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from rl_core.data.pixels import StoredImage, check_format, fit_pixels, prepare_image, read_image


def encode(image, kind, **options):
    buffer = BytesIO()
    image.save(buffer, format=kind, **options)
    return buffer.getvalue()


def noise(mode="RGB", size=(40, 30)):
    channels = len(Image.new(mode, (1, 1)).getbands())
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], channels), np.uint8)
    return (
        Image.fromarray(pixels.squeeze(), mode=mode) if channels == 1 else Image.frombytes(mode, size, pixels.tobytes())
    )


def test_sizes_follow_the_rule_of_the_published_baselines():
    # (width, height, min, max) -> floor(side x sqrt(limit / area)), worked out by hand
    for size, low, high, expected in [
        ((1000, 500), 1, 125_000, (500, 250)),
        ((84, 84), 3136, 4_194_304, (84, 84)),
        ((10, 20), 3136, 4_194_304, (39, 79)),
        ((333, 101), 1, 10_000, (181, 55)),
    ]:
        assert fit_pixels(Image.new("RGB", size), min_pixels=low, max_pixels=high).size == expected


@pytest.mark.parametrize(("kind", "options"), [("PNG", {}), ("JPEG", {"quality": 90})])
def test_a_plain_image_within_the_limits_keeps_its_bytes(kind, options):
    data = encode(noise(), kind, **options)
    stored = prepare_image(data, min_pixels=1, max_pixels=10_000)
    assert stored == StoredImage(data, 40, 30, (40, 30))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (encode(noise(), "BMP"), "another format"),
        (encode(noise("L"), "PNG"), "gray"),
        (encode(noise("RGBA"), "PNG"), "transparent"),
        (encode(noise("CMYK"), "JPEG"), "print colours"),
        (encode(noise().convert("P"), "PNG"), "a palette"),
        (noise(), "never encoded"),
    ],
)
def test_any_other_image_becomes_a_png_of_the_same_picture(data, why):
    stored = prepare_image(data, min_pixels=1, max_pixels=10_000)
    image = Image.open(BytesIO(stored.encoded))
    assert (image.format, image.mode, image.size) == ("PNG", "RGB", (40, 30)), why
    expected, _ = read_image(data)
    assert np.array_equal(np.asarray(image), np.asarray(expected))


def test_an_image_beyond_the_limits_is_stored_at_its_final_size():
    stored = prepare_image(encode(noise(size=(200, 100)), "JPEG"), min_pixels=1, max_pixels=5_000)
    assert (stored.width, stored.height, stored.original) == (100, 50, (200, 100))
    assert Image.open(BytesIO(stored.encoded)).size == (100, 50)


def test_transparent_parts_become_white():
    image = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    image.putpixel((0, 0), (10, 20, 30, 255))
    image.putpixel((1, 0), (0, 0, 0, 128))
    rgb, _ = read_image(encode(image, "PNG"))
    assert rgb.getpixel((0, 0)) == (10, 20, 30)
    assert rgb.getpixel((1, 0)) == (127, 127, 127)
    assert rgb.getpixel((3, 3)) == (255, 255, 255)


def test_a_rotation_in_the_metadata_is_applied():
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned by a quarter
    data = encode(noise(size=(40, 30)), "JPEG", exif=exif)
    stored = prepare_image(data, min_pixels=1, max_pixels=10_000)
    assert (stored.width, stored.height) == (30, 40)
    assert Image.open(BytesIO(stored.encoded)).getexif().get(0x0112, 1) == 1


def test_sixteen_bit_gray_keeps_its_upper_bits():
    values = np.array([[0, 255, 256], [32768, 65279, 65535]], np.uint16)
    rgb, _ = read_image(encode(Image.fromarray(values), "PNG"))
    assert np.asarray(rgb)[:, :, 0].tolist() == [[0, 0, 1], [128, 254, 255]]


def test_sixteen_bits_of_a_ppm_are_brought_to_their_full_range():
    """Pillow opens it as 32 bits."""
    data = b"P5 2 1 1023\n" + np.array([0, 1023], ">u2").tobytes()
    rgb, _ = read_image(data)
    assert np.asarray(rgb)[0, :, 0].tolist() == [0, 255]


@pytest.mark.parametrize("dtype", [np.int32, np.int16])
def test_whole_numbers_of_no_known_range_are_refused(dtype):
    image = Image.frombytes("I", (2, 2), np.array([0, 1, 70_000, -5], np.int32).tobytes())
    for source in (image, encode(image, "TIFF")):
        with pytest.raises(ValueError, match="32-bit whole numbers of unknown range"):
            read_image(source)


def test_an_animation_gives_its_first_frame():
    frames = [Image.new("RGB", (8, 8), colour) for colour in ((250, 0, 0), (0, 250, 0))]
    for kind in ("GIF", "PNG"):
        data = encode(frames[0], kind, save_all=True, append_images=frames[1:])
        rgb, kept = read_image(data)
        assert rgb.getpixel((4, 4)) == (250, 0, 0)
        assert kept is None


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("share", [0.02, 0.6])
def test_a_truncated_image_is_refused_wherever_it_ends(kind, share):
    data = encode(noise(size=(64, 64)), kind)
    with pytest.raises(ValueError, match="the image is"):
        read_image(data[: int(len(data) * share)])


def test_damaged_pixels_of_a_png_are_noticed():
    data = bytearray(encode(noise(), "PNG"))
    data[len(data) // 2] ^= 0xFF
    with pytest.raises(ValueError, match="the image is damaged"):
        read_image(bytes(data))


def test_no_file_and_floating_point_pixels_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"nothing.png cannot be read: No such file"):
        read_image(tmp_path / "nothing.png")
    with pytest.raises(ValueError, match="floating-point"):
        read_image(encode(Image.new("F", (4, 4)), "TIFF"))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "is HEIC, which no installed decoder reads: convert it to PNG or JPEG"),
        (
            b"<?xml version='1.0'?>\n<svg xmlns='http://www.w3.org/2000/svg'/>",
            "is SVG, which no installed decoder reads",
        ),
        (b"<!DOCTYPE html><title>404</title>", "is a web page: perhaps a server's answer in place of the file"),
        (
            b"version https://git-lfs.github.com/spec/v1",
            "is a pointer of Git LFS: fetch the content with `git lfs pull`",
        ),
        (b"", "is of no known format, or its start is damaged"),
    ],
)
def test_a_file_that_is_no_readable_image_is_recognised(tmp_path, data, reason):
    (tmp_path / "a.png").write_bytes(data)
    for source, name in ((data, "the image"), (tmp_path / "a.png", "the image a.png")):
        for look in (read_image, check_format):
            with pytest.raises(ValueError, match="the image") as caught:
                look(source)
            assert str(caught.value).startswith(f"{name} {reason}")


def test_the_format_of_a_readable_image_is_known(tmp_path):
    (tmp_path / "a").write_bytes(encode(noise(), "WEBP"))
    for source in (tmp_path / "a", encode(noise(), "JPEG"), noise()):
        check_format(source)
