"""Any picture as an image of one shape."""

import io
import pathlib

import numpy as np
import pytest
from PIL import Image

from datalens_tf.data.sources import pictures

GREY, RGB = (8, 8, 1), (8, 8, 3)


def encoded(picture, kind="PNG", **more):
    buffer = io.BytesIO()
    picture.save(buffer, kind, **more)
    return buffer.getvalue()


def flat(mode, colour, size=(8, 8)):
    return Image.new(mode, size, colour)


def numbers(value, dtype):
    return Image.fromarray(np.full((8, 8), value, dtype))


@pytest.mark.parametrize("picture, kind, wanted", [
    (flat("L", 100), "PNG", 100), (flat("1", 1), "PNG", 255), (flat("RGB", (100, 100, 100)), "BMP", 100),
    (flat("L", 100), "GIF", 100), (flat("RGB", (100, 100, 100)), "WEBP", 100),
    (flat("CMYK", (0, 0, 0, 0)), "TIFF", 255), (flat("CMYK", (0, 0, 0, 255)), "JPEG", 0),
    (flat("RGBA", (0, 0, 0, 0)), "PNG", 255),  # Transparent: white.
    (flat("RGBA", (0, 0, 0, 255)), "PNG", 0), (flat("LA", (0, 127)), "PNG", 128),
    (numbers(40_000, np.uint16), "PNG", 156), (numbers(40_000, np.uint16), "TIFF", 156),
    (numbers(2**30, np.int32), "TIFF", 128), (numbers(0.5, np.float32), "TIFF", 128),
    (numbers(np.nan, np.float32), "TIFF", 0), (numbers(7.0, np.float32), "TIFF", 255)])
def test_modes_are_scaled_from_the_range_of_their_kind(picture, kind, wanted):
    for shape in (GREY, RGB):
        image = pictures.read(encoded(picture, kind), shape)
        assert image.shape == shape and image.dtype == np.uint8
        np.testing.assert_allclose(image, wanted, atol=2)


@pytest.mark.parametrize("picture, bits, wanted", [
    (numbers(2_047, np.uint16), 12, 127), (numbers(4_095, np.uint16), 12, 255), (numbers(60_000, np.uint16), 12, 255),
    (numbers(2**15, np.int32), 16, 128), (numbers(2**30, np.int32), 32, 64),
    (flat("L", 100), 4, 100), (numbers(2_047.0, np.float32), 12, 127)])
def test_a_scanners_bits_decide_what_is_white_in_pictures_of_more_than_eight(picture, bits, wanted):
    np.testing.assert_allclose(pictures.read(encoded(picture, "TIFF"), GREY, bits), wanted, atol=1)
    images, _ = pictures.read_all([encoded(picture, "TIFF")], 1, RGB, bits)
    np.testing.assert_allclose(images, wanted, atol=1)


def test_the_largest_number_is_that_of_pictures_of_more_than_eight_bits():
    dark, bright = (encoded(numbers(value, np.uint16)) for value in (3_000, 4_000))
    others = [encoded(flat("L", 255)), b"junk"]
    assert pictures.largest_number([dark, *others, bright]) == (4_000, 65_535)
    assert pictures.largest_number([dark, *others], 12) == (3_000, 4_095)
    assert pictures.largest_number(others) == ()
    assert pictures.largest_number([encoded(numbers(299.5, np.float32), "TIFF")]) == (300, 1)


def test_a_picture_that_fits_is_kept_to_the_bit():
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    np.testing.assert_array_equal(pictures.read(encoded(Image.fromarray(pixels)), RGB), pixels)


def test_a_palette_may_be_transparent():
    picture = flat("RGB", (0, 0, 250)).quantize(4)
    np.testing.assert_allclose(pictures.read(encoded(picture), RGB)[0, 0], [0, 0, 250], atol=8)
    data = encoded(picture, "GIF", transparency=picture.getpixel((0, 0)))
    assert pictures.read(data, RGB)[0, 0].tolist() == [255, 255, 255]


def test_what_is_too_long_is_cut_off_at_both_ends():
    pixels = np.zeros((8, 24), np.uint8)
    pixels[:, 8:16] = 200
    assert (pictures.read(encoded(Image.fromarray(pixels)), GREY) == 200).all()


def test_the_first_frame_counts():
    frames = [flat("L", 50), flat("L", 200)]
    for kind in ("GIF", "TIFF"):
        assert (pictures.read(encoded(frames[0], kind, save_all=True, append_images=frames[1:]), GREY) == 50).all()


def test_exif_turns_a_picture():
    pixels = np.zeros((16, 16), np.uint8)
    pixels[:8] = 250
    exif = Image.Exif()
    exif[0x0112] = 6  # To be turned clockwise: the top becomes the right.
    image = pictures.read(encoded(Image.fromarray(pixels), "JPEG", exif=exif), GREY)[..., 0]
    assert image[:, 5:].mean() > 200 and image[:, :3].mean() < 50


@pytest.mark.parametrize("bits, photometric, window, wanted", [
    (12, "MONOCHROME2", None, [0, 255]), (12, "MONOCHROME1", None, [255, 0]),
    (12, "MONOCHROME2", (1000, 2000), [13, 255])])
def test_dicom(tmp_path, bits, photometric, window, wanted):
    pydicom = pytest.importorskip("pydicom")
    about = pydicom.Dataset()
    about.file_meta = pydicom.dataset.FileMetaDataset()
    about.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    about.Rows = about.Columns = 8
    about.SamplesPerPixel, about.PhotometricInterpretation, about.PixelRepresentation = 1, photometric, 0
    about.BitsAllocated, about.BitsStored, about.HighBit = 16, bits, bits - 1
    if window:
        about.WindowCenter, about.WindowWidth = window
    pixels = np.full((8, 8), 100, np.uint16)
    pixels[:, 4:] = 4000
    about.PixelData = pixels.tobytes()
    about.SOPClassUID, about.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.2", "1.2.3"
    about.save_as(tmp_path / "x.dcm", enforce_file_format=True)
    image = pictures.read(tmp_path / "x.dcm", GREY)[..., 0]
    np.testing.assert_allclose([image[0, 0], image[0, -1]], wanted, atol=1)
    assert pictures.size_of(tmp_path / "x.dcm") == (8, 8)


def test_heic():
    heif = pytest.importorskip("pillow_heif")
    buffer = io.BytesIO()
    heif.from_pillow(flat("RGB", (200, 100, 50), (16, 16))).save(buffer)
    assert pictures.size_of(buffer.getvalue()) == (16, 16)
    np.testing.assert_allclose(pictures.read(buffer.getvalue(), RGB)[4, 4], [200, 100, 50], atol=6)


def test_no_picture_decides_how_others_are_read(monkeypatch):
    """Were the reader registered for the first HEIC picture, that record would change what others become."""
    pytest.importorskip("pillow_heif")
    Image.init()
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    pictures._let_pillow_read_heic.cache_clear()
    pictures.read(encoded(flat("L", 9)), GREY)
    assert "HEIF" in Image.OPEN


def test_images_beyond_the_limit_are_in_a_file(monkeypatch):
    monkeypatch.setattr(pictures, "IN_MEMORY", 100)
    images, failed = pictures.read_all([encoded(flat("L", 9)), None, b"junk"], 3, GREY)
    assert isinstance(images, np.memmap) and images[:, 0, 0, 0].tolist() == [9, 0, 0]
    assert failed == {2: "it is no picture"}


def test_what_is_no_file(tmp_path):
    for path in (tmp_path, tmp_path / "missing", pathlib.Path("/dev/zero")):
        with pytest.raises(pictures.UnreadableError):
            pictures.read(path, GREY)
