"""The archives of ILSVRC2012: the classes of the images, and refused archives."""

from __future__ import annotations

import gzip
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.data.conftest import CLASSES, TRAIN, VALIDATION, picture, tar_of

from weft_data.errors import DatasetError
from weft_data.imagenet import Archives, imagenet
from weft_data.source import Item, Source

# The devkit's order of its first synsets, as published; it is not the alphabetical one.
DEVKIT_ORDER = ["n02119789", "n02100735", "n02110185", "n02096294", "n02102040"]
DEVKIT = "ILSVRC2012_devkit_t12.tar.gz"
TRUTH = "ILSVRC2012_validation_ground_truth.txt"


def expected_validation(folder: Path) -> list[int]:
    """Class by image, worked out from the devkit's text file and its published order alone."""
    with tarfile.open(folder / DEVKIT) as tar:
        file = tar.extractfile(f"ILSVRC2012_devkit_t12/data/{TRUTH}")
        assert file
        ids = [int(line) for line in file.read().split()]
    return [sorted(DEVKIT_ORDER).index(DEVKIT_ORDER[number - 1]) for number in ids]


@pytest.fixture
def copy(ilsvrc: Path, tmp_path: Path) -> Path:
    """The archives without a devkit, but with its ground truth."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for name in ("ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"):
        (folder / name).symlink_to(ilsvrc / name)
    with tarfile.open(ilsvrc / DEVKIT) as tar:
        file = tar.extractfile(f"ILSVRC2012_devkit_t12/data/{TRUTH}")
        assert file
        (folder / TRUTH).write_bytes(file.read())
    return folder


def test_every_image_gets_its_class(ilsvrc: Path) -> None:
    source = imagenet(Archives.find(ilsvrc))
    assert source.classes == sorted(DEVKIT_ORDER)
    assert source.titles["n02119789"].startswith("kit fox")
    train = source.splits["train"]
    assert len(train) == CLASSES * TRAIN
    assert {item.name.split("_")[0] for item in train} == set(DEVKIT_ORDER)
    assert all(source.classes[item.label] == item.name.split("_")[0] for item in train)
    validation = source.splits["validation"]
    assert [item.name for item in validation] == [f"ILSVRC2012_val_{n:08}" for n in range(1, VALIDATION + 1)]
    assert [item.label for item in validation] == expected_validation(ilsvrc)
    # In place: what lies there is what tarfile finds.
    with tarfile.open(ilsvrc / "ILSVRC2012_img_val.tar") as tar:
        for item in validation:
            file = tar.extractfile(f"{item.name}.JPEG")
            assert file
            with open(item.path, "rb") as archive:
                archive.seek(item.offset)
                assert archive.read(item.size) == file.read()


@pytest.mark.parametrize(
    "lines",
    [
        DEVKIT_ORDER,
        [f"{wnid} a title" for wnid in DEVKIT_ORDER],
        sorted(f"{wnid} {number} name" for number, wnid in enumerate(DEVKIT_ORDER, 1)),
    ],
    ids=["wnids", "titles", "map_clsloc"],
)
def test_a_text_file_of_synsets_does_instead_of_a_devkit(copy: Path, ilsvrc: Path, lines: list[str]) -> None:
    (copy / "synsets.txt").write_text("".join(f"{line}\n" for line in lines))
    source = imagenet(Archives.find(copy))
    assert [item.label for item in source.splits["validation"]] == expected_validation(ilsvrc)


def test_a_list_in_alphabetical_order_is_refused_as_it_would_give_wrong_classes(copy: Path) -> None:
    (copy / "synsets.txt").write_text("\n".join(sorted(DEVKIT_ORDER)))
    with pytest.raises(DatasetError, match="in alphabetical order, which is not the devkit's order"):
        imagenet(Archives.find(copy))


def test_a_ground_truth_of_wnids_needs_no_devkit(copy: Path, ilsvrc: Path) -> None:
    wnids = [sorted(DEVKIT_ORDER)[label] for label in expected_validation(ilsvrc)]
    (copy / TRUTH).write_text("\n".join(wnids))
    source = imagenet(Archives.find(copy))
    assert [item.label for item in source.splits["validation"]] == expected_validation(ilsvrc)


def test_an_unpacked_devkit_does_too(copy: Path, ilsvrc: Path) -> None:
    (copy / TRUTH).unlink()
    subprocess.run(["tar", "-xf", ilsvrc / DEVKIT, "-C", copy], check=True)
    assert imagenet(Archives.find(copy)).splits == _elsewhere(imagenet(Archives.find(ilsvrc)), copy)


def _elsewhere(source: Source, folder: Path) -> dict[str, list[Item]]:
    return {
        split: [item._replace(path=str(folder / Path(item.path).name)) for item in items]
        for split, items in source.splits.items()
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text, "numbers in the devkit's order: give ILSVRC2012_devkit_t12"),
        (lambda text: text.replace("\n", "\nx\n", 1), "line 2: 'x'; expected an ILSVRC2012_ID"),
    ],
    ids=["no devkit", "no number"],
)
def test_a_ground_truth_that_says_nothing(copy: Path, change: Callable[[str], str], message: str) -> None:
    (copy / TRUTH).write_text(change((copy / TRUTH).read_text()))
    if change("\n") != "\n":
        (copy / "synsets.txt").write_text("\n".join(DEVKIT_ORDER))
    with pytest.raises(DatasetError, match=message):
        imagenet(Archives.find(copy))


def test_numbers_that_do_not_fit(copy: Path) -> None:
    (copy / "synsets.txt").write_text("\n".join(DEVKIT_ORDER))
    truth = (copy / TRUTH).read_text()
    (copy / TRUTH).write_text(truth.replace(truth.split()[0], "6", 1))
    with pytest.raises(DatasetError, match="line 1: there is no synset 6; the highest is 5"):
        imagenet(Archives.find(copy))
    (copy / TRUTH).write_text(truth + "1\n")
    with pytest.raises(DatasetError, match="holds 20 images, but the ground truth is for 21"):
        imagenet(Archives.find(copy))
    (copy / "synsets.txt").write_text("\n".join(DEVKIT_ORDER[:3]))
    with pytest.raises(DatasetError, match="synsets that are not in the devkit: n0"):
        imagenet(Archives.find(copy))


def test_one_archive_alone(copy: Path) -> None:
    (copy / "ILSVRC2012_img_val.tar").unlink()
    source = imagenet(Archives.find(copy))
    assert (source.classes, set(source.splits)) == (sorted(DEVKIT_ORDER), {"train"})
    assert "no validation split" in source.notes[0]
    (copy / "ILSVRC2012_img_train.tar").unlink()
    with pytest.raises(DatasetError, match="holds neither ILSVRC2012_img_train"):
        imagenet(Archives.find(copy))


def header(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


GOOD = ("n01440764_1.JPEG", picture())


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (header("n01440764_2.JPEG", tarfile.SYMTYPE, "/etc/passwd"), "holds a link"),
        (header("n01440764_2.JPEG", tarfile.LNKTYPE, "n01440764_1.JPEG"), "holds a link"),
        (header("n01440764_2.JPEG", tarfile.CHRTYPE), "not a regular file"),
        (header("n01440764_2.JPEG", tarfile.FIFOTYPE), "not a regular file"),
        (("../n01440764_2.JPEG", b"x"), "leads out of the archive"),
        (("/n01440764_2.JPEG", b"x"), "leads out of the archive"),
        (("a\\..\\n01440764_2.JPEG", b"x"), "leads out of the archive"),
        (("n01440764\x1b[2J_2.JPEG", b"x"), "leads out of the archive"),
    ],
)
def test_hostile_archives_are_refused_inside_and_out(
    tmp_path: Path, entry: tarfile.TarInfo | tuple[str, bytes], message: str
) -> None:
    inner = tar_of(tmp_path / "n01440764.tar", GOOD, entry).read_bytes()
    outer = tmp_path / "ILSVRC2012_img_train.tar"
    for entries in ([("n01440764.tar", inner)], [entry]):
        tar_of(outer, *entries)
        with pytest.raises(DatasetError, match=message):
            imagenet(Archives.find(tmp_path))


def test_a_hostile_devkit(copy: Path) -> None:
    link = header("ILSVRC2012_devkit_t12/data/meta.mat", tarfile.SYMTYPE, "/etc/passwd")
    for entry in (link, ("../meta.mat", b"x"), ("/data/meta.mat", b"x")):
        tar_of(copy / "ILSVRC2012_devkit_t12.tar", entry)
        with pytest.raises(DatasetError, match="a link or a path that leads out"):
            imagenet(Archives.find(copy))
    tar_of(copy / "ILSVRC2012_devkit_t12.tar", ("x/data/meta.mat", b"MATLAB 5.0 MAT-file" + bytes(200)))
    with pytest.raises(DatasetError, match=r"meta\.mat can't be read"):
        imagenet(Archives.find(copy))


def test_archives_that_are_none(tmp_path: Path) -> None:
    outer = tmp_path / "ILSVRC2012_img_train.tar"
    inner = tar_of(tmp_path / "inner", GOOD, ("n01440764_2.JPEG", picture(1))).read_bytes()
    whole = tar_of(tmp_path / "whole", ("n01440764.tar", inner)).read_bytes()
    cases = {
        b"": "not a tar archive",
        b"some text" * 1000: "not a tar archive",
        gzip.compress(whole): r"compressed \(gzip\)",
        whole[: len(inner) // 2]: "cut off",
        whole[: len(inner) + 512]: "cut off",
    }
    for content, message in cases.items():
        outer.write_bytes(content)
        with pytest.raises(DatasetError, match=message):
            imagenet(Archives.find(tmp_path))
    # An inner archive whose file reaches beyond its own end, into its neighbour.
    long = tarfile.TarInfo("n01440764_9.JPEG")
    long.size = 1 << 20
    forged = long.tobuf() + bytes(1024)
    tar_of(outer, ("n01440764.tar", forged), ("n01443537.tar", inner), ("n01484850.tar", bytes(2 << 20)))
    with pytest.raises(DatasetError, match="cut off"):
        imagenet(Archives.find(tmp_path))
    tar_of(outer, ("n01440764.zip", inner))
    with pytest.raises(DatasetError, match="expected one archive per synset"):
        imagenet(Archives.find(tmp_path))
