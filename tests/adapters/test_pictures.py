"""Pictures of every kind become the same images, whichever door they come through."""

import io

import datasets
import numpy as np
import pytest
from PIL import Image
from PIL.Image import Exif

from fedtide import SettingsError, from_huggingface, from_torch
from fedtide.world.data.image_folder import ImageFolder

RNG = np.random.default_rng(0)
GRAY = RNG.integers(0, 256, (4, 6), dtype=np.uint8)
RED = RNG.integers(0, 256, (4, 6, 3), dtype=np.uint8)
BLACK = np.zeros((4, 6), np.uint8)


def through_a_folder(folder, pictures, ending="png", **options):
    for name, shown in zip("ab", pictures, strict=True):
        (folder / "images" / name).mkdir(parents=True)
        shown.save(folder / "images" / name / f"1.{ending}", exif=shown.getexif())
    path = str(folder / "images")
    return ImageFolder(ImageFolder.Settings(path=path, test=path, **options)).read(folder)


def through_torch(folder, pictures, ending="png", **options):
    samples = [(shown, label) for label, shown in enumerate(pictures)]
    return from_torch(samples, test=samples, **options)


def through_huggingface(folder, pictures, ending="png", **options):
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    files = [io.BytesIO(), io.BytesIO()]
    for file, shown in zip(files, pictures, strict=True):
        shown.save(file, "TIFF" if ending == "tif" else "PNG", exif=shown.getexif())
    images = [{"bytes": file.getvalue(), "path": None} for file in files]
    rows = datasets.Dataset.from_dict({"image": images, "label": [0, 1]}, features=features)
    return from_huggingface(rows, test=rows, **options)


doors = pytest.mark.parametrize("door", [through_a_folder, through_torch, through_huggingface])


def transparent(colors, alpha):
    return Image.fromarray(np.dstack([colors, alpha]))


@pytest.mark.parametrize(
    ("shown", "ending", "options", "expected"),
    [
        (Image.fromarray(GRAY.astype(np.uint16) * 257), "png", {}, GRAY),
        (Image.fromarray(GRAY.astype(np.uint16) * 257), "tif", {}, GRAY),
        (Image.fromarray(GRAY.astype(np.uint16) * 16), "png", {"white_level": 4080}, GRAY),
        (Image.fromarray(GRAY.astype(np.int32) * 1000), "tif", {"white_level": 255000}, GRAY),
        (Image.fromarray(GRAY.astype(np.float32) / 255), "tif", {"white_level": 1}, GRAY),
        (Image.fromarray(GRAY), "png", {"white_level": 1}, GRAY),
        (transparent(np.dstack([GRAY] * 3), BLACK + 255), "png", {}, GRAY),
        (transparent(np.dstack([BLACK] * 3), GRAY // 255 * 255), "png", {}, 128 - GRAY // 255 * 128),
        (Image.fromarray(np.dstack([GRAY, BLACK])), "png", {}, BLACK + 128),
        (Image.fromarray(GRAY > 99), "png", {}, (GRAY > 99) * 255),
    ],
    ids=["16 bits", "16 bits, TIFF", "12 bits", "32 bits", "float", "8 bits", "opaque", "shape", "invisible", "1 bit"],
)  # fmt: skip
def test_gray_levels_are_kept(tmp_path, shown, ending, options, expected):
    data = through_a_folder(tmp_path, [shown, shown], ending, channels=1, **options)
    assert np.array_equal(data.train_inputs.numpy(), np.broadcast_to(expected, (2, 1, 4, 6)))
    assert np.array_equal(data.test_inputs.numpy(), data.train_inputs.numpy())


@doors
def test_a_camera_that_was_turned(tmp_path, door):
    turned, exif = Image.fromarray(GRAY), Exif()
    exif[0x0112] = 6
    turned.info["exif"] = exif.tobytes()
    data = door(tmp_path, [turned, Image.fromarray(GRAY.T)], channels=1)
    assert np.array_equal(data.train_inputs[0, 0].numpy(), np.rot90(GRAY, -1))


@doors
def test_modes_and_sizes_can_differ(tmp_path, door):
    """By default gray pictures among colored ones have three channels."""
    mixed = [Image.fromarray(GRAY), Image.fromarray(RED)]
    data = door(tmp_path / "1", mixed)
    assert np.array_equal(data.train_inputs.numpy(), [[GRAY] * 3, RED.transpose(2, 0, 1)])
    larger = [mixed[0].resize((12, 8), Image.Resampling.NEAREST), mixed[0]]
    assert door(tmp_path / "2", larger, channels=1, size=(4, 6)).input_shape == (1, 4, 6)
    with pytest.raises(SettingsError, match=r"height and width 4x6, the first one 8x12; set (data\.)?size to resize"):
        door(tmp_path / "3", larger)


def test_a_test_set_has_the_channels_of_training():
    gray, red = ([(Image.fromarray(shown), label) for label in (0, 1)] for shown in (GRAY, RED))
    assert from_torch(gray, test=red).test_inputs.shape == (2, 1, 4, 6)
    assert from_torch(red, test=gray).test_inputs.shape == (2, 3, 4, 6)


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (GRAY / np.float32(255), {}, r"values of mode F from [\d.e-]+ to [\d.]+; set (data\.)?white_level .* such as 1, 255"),
        (GRAY.astype(np.int32) * 16, {}, r"values of mode I from \d+ to \d+; set (data\.)?white_level to that of white"),
        (GRAY.astype(np.int32) - 200, {"white_level": 255}, r"from -\d+ to .* \(allowed are 0 to (data\.)?white_level\)"),
        (GRAY * np.float32("nan"), {"white_level": 1}, "from nan to nan"),
        (GRAY.astype(np.uint16), {"white_level": 99}, "values of mode I;16 from .*white_level"),
    ],
)  # fmt: skip
def test_values_without_a_scale_are_refused(tmp_path, values, options, message):
    with pytest.raises(SettingsError, match=message) as raised:
        through_a_folder(tmp_path, [Image.fromarray(values)] * 2, "tif", **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("options", "wrong"), [({"channels": 2}, "channels = 2"), ({"size": (0, 4)}, r"size\.0 = 0")])
def test_options_that_cannot_be(options, wrong):
    with pytest.raises(SettingsError, match=f"pictures: {wrong}: should be"):
        from_torch([(Image.fromarray(GRAY), label) for label in (0, 1)], **options)
