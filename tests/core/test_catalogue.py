"""Which image serves a framework and version; the shipped catalogue is one that can be built."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft_core import bundled
from weft_core.catalogue import UNSERVED, Catalogue, Image, UnknownFramework, UnknownVersion


def image(name: str, version: str, *frameworks: str) -> Image:
    return Image(name, version, Path(name), Path(name, "lock"), frameworks or (name,), ("none",), "none")


CATALOGUE = Catalogue(
    [
        image("torch", "2.9.1", "torch"),
        image("torch", "2.13.0", "torch"),
        image("torch", "2.13.1", "torch"),
        image("torch", "1.13.1", "torch"),
        image("flow", "2.21.0", "flow", "keras"),
        image("both", "0.28.1-a", "both"),
        image("both", "0.28.1-b", "both"),
    ],
    {"torch:old": "torch:1.13", "both:latest": "both:0.28.1-a", "torch:broken": "torch:7"},
)


@pytest.mark.parametrize(
    ("framework", "version", "reference"),
    [
        ("torch", None, "torch:2.13.1"),
        ("torch", "", "torch:2.13.1"),
        ("torch", "2", "torch:2.13.1"),
        ("torch", "2.13", "torch:2.13.1"),
        ("torch", "2.13.0", "torch:2.13.0"),
        ("torch", "2.9", "torch:2.9.1"),
        ("torch", "1", "torch:1.13.1"),
        ("torch", "old", "torch:1.13.1"),
        ("torch", "torch:2.13.0", "torch:2.13.0"),
        ("keras", None, "flow:2.21.0"),
        ("both", None, "both:0.28.1-a"),
        ("both", "0.28", "both:0.28.1-a"),
        ("both", "0.28.1-b", "both:0.28.1-b"),
    ],
)
def test_resolve(framework: str, version: str | None, reference: str) -> None:
    assert CATALOGUE.resolve(framework, version).reference == reference


def test_the_installation_s_aliases_win() -> None:
    assert CATALOGUE.resolve("torch", "old", {"torch:old": "torch:2.9"}).reference == "torch:2.9.1"
    assert CATALOGUE.resolve("keras", "9", {"keras:9": "flow:2"}).reference == "flow:2.21.0"


@pytest.mark.parametrize("version", ["2.1", "2.13.", "3", "2.13.0.1", "13", "2_13"])
def test_no_such_version_says_which_there_are(version: str) -> None:
    with pytest.raises(UnknownVersion, match=f"no image has version '{version}' of torch") as caught:
        CATALOGUE.resolve("torch", version)
    assert caught.value.accepted == ("2.13.1", "2.13.0", "2.9.1", "1.13.1")


def test_an_alias_that_leads_nowhere_is_the_settings_fault() -> None:
    with pytest.raises(UnknownVersion, match=r"maps torch:broken to torch:7, .* images.aliases"):
        CATALOGUE.resolve("torch", "broken")


def test_frameworks_without_an_image() -> None:
    for framework in UNSERVED:
        with pytest.raises(UnknownFramework, match=r"framework\.name: custom"):
            CATALOGUE.resolve(framework, "latest")
    with pytest.raises(UnknownFramework, match="no image of this installation provides ray yet") as caught:
        CATALOGUE.resolve("ray")
    assert caught.value.accepted == ("torch", "flow", "keras", "both")


def test_the_shipped_catalogue_can_be_built() -> None:
    catalogue = Catalogue.load()
    assert Catalogue.load() is catalogue
    assert set(catalogue.frameworks) == {"pytorch", "tensorflow", "keras", "horovod", "ray", "python"}
    for image in catalogue.images:
        assert image.lock.is_file(), image.lock
        assert image.build is None or image.build.is_file()
        assert image.default_launcher in image.launchers
        assert catalogue.get(image.reference) is image
    for alias, target in catalogue.aliases.items():
        framework, _, version = alias.partition(":")
        assert catalogue.resolve(framework, version).reference == target


@pytest.mark.parametrize(
    ("framework", "version", "name"),
    [
        ("tensorflow", "1.5.0-py3", "tensorflow"),
        ("tensorflow", "1.5", "tensorflow"),
        ("tensorflow", "1.9.0-gpu", "tensorflow"),
        ("tensorflow", "1.5-py3-horovod", "horovod"),
        ("tensorflow", "latest-gpu-py3", "tensorflow"),
        ("pytorch", "latest", "pytorch"),
        ("pytorch", "v0.2", "pytorch"),
        ("horovod", "0.13.10-tf1.9.0-torch0.4.0-py3.5", "horovod"),
        ("horovod", "0.13.4-tf1.8.0-torch0.4.0-py3.5", "horovod"),
    ],
)
def test_versions_that_ffdl_documented(framework: str, version: str, name: str) -> None:
    assert Catalogue.load().resolve(framework, version).name == name


def test_horovods_images_by_their_framework() -> None:
    catalogue = Catalogue.load()
    assert "torch" in catalogue.resolve("horovod", "pytorch").version
    assert "tf" in catalogue.resolve("horovod", "tensorflow").version


def test_bundled_folders() -> None:
    assert (bundled.path("trainer_images") / "catalogue.toml").is_file()
    assert (bundled.path("migrations") / "env.py").is_file()
    with pytest.raises(ValueError, match="there are trainer_images, migrations"):
        bundled.path("secrets")


def test_an_installation_without_its_data_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "_PACKAGE", tmp_path / "lib" / "weft_core")
    with pytest.raises(FileNotFoundError, match="migrations is missing from this installation"):
        bundled.path("migrations")
    (tmp_path / "lib/weft_core/_bundled/migrations").mkdir(parents=True)
    assert bundled.path("migrations") == tmp_path / "lib/weft_core/_bundled/migrations"
