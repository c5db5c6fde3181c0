"""From a folder to a zip: the same bytes for the same code, and only what belongs in it."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import zipfile
from pathlib import Path

import pytest

from weft.bundle import collect, open_bundle
from weft.errors import BundleError


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def names(folder: Path, leave_out: Path | None = None) -> list[str]:
    return [name for name, _ in collect(folder, leave_out)]


def digest(folder: Path) -> str:
    with open_bundle(folder) as bundle:
        assert bundle is not None
        return bundle.sha256


def test_the_same_code_is_the_same_zip(tmp_path: Path) -> None:
    files = {"train.py": "print(1)", "b/x.py": "x", "a.py": "a", "b/a/deep.py": "d", "ü.txt": "u"}
    first = tree(tmp_path / "one", files)
    second = tree(tmp_path / "two", dict(reversed(files.items())))
    for path in second.rglob("*.py"):
        os.utime(path, (1, 1))
        path.chmod(0o600)
    assert digest(first) == digest(second)


@pytest.mark.parametrize("change", ["content", "name", "executable"])
def test_other_code_is_another_zip(tmp_path: Path, change: str) -> None:
    folder = tree(tmp_path, {"train.py": "print(1)"})
    before = digest(folder)
    if change == "content":
        (folder / "train.py").write_text("print(2)")
    elif change == "name":
        (folder / "train.py").rename(folder / "main.py")
    else:
        (folder / "train.py").chmod(0o755)
    assert digest(folder) != before


def test_the_zip_holds_names_contents_and_the_executable_bit(tmp_path: Path) -> None:
    folder = tree(tmp_path / "code", {"b/run.sh": "#!/bin/sh", "a.py": "a"})
    (folder / "b/run.sh").chmod(0o755)
    with open_bundle(folder) as bundle:
        assert bundle is not None
        assert bundle.files == 2
        with zipfile.ZipFile(bundle.path) as archive:
            entries = archive.infolist()
            assert [entry.filename for entry in entries] == ["a.py", "b/run.sh"]
            assert [entry.external_attr >> 16 & 0o777 for entry in entries] == [0o644, 0o755]
            assert archive.read("b/run.sh") == b"#!/bin/sh"
        path = bundle.path
    assert not path.exists()


def test_what_is_never_code_stays_out(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "train.py": "",
            ".git/config": "",
            "pkg/__pycache__/m.pyc": "",
            "sub/.venv/bin/python": "",
            ".DS_Store": "",
            ".gitignore": "!.git\n!__pycache__\n",
        },
    )
    assert names(tmp_path) == [".gitignore", "train.py"]


def test_the_manifest_stays_out_whatever_way_it_is_named(tmp_path: Path) -> None:
    tree(tmp_path, {"train.py": "", "manifest.yml": "password: x"})
    (tmp_path / "link.yml").symlink_to("manifest.yml")
    assert names(tmp_path, tmp_path / "sub" / ".." / "manifest.yml") == ["train.py"]


def test_weftignore_wins_over_gitignore(tmp_path: Path) -> None:
    tree(tmp_path, {".gitignore": "*.bin\n*.log\n", ".weftignore": "!weights.bin\ndata/\n"})
    tree(tmp_path, {"weights.bin": "", "other.bin": "", "a.log": "", "data/x": "", "train.py": ""})
    assert names(tmp_path) == [".gitignore", ".weftignore", "train.py", "weights.bin"]


def test_ignore_rules_are_gits(tmp_path: Path) -> None:
    """The very files that git itself would take, for patterns of all kinds and nested files."""
    if shutil.which("git") is None:
        pytest.skip("no git to compare with")
    rules = {
        ".gitignore": "*.log\n!keep.log\n/top.txt\nout/\nlogs/**\n!logs/keep.txt\n**/cache\na/*/z.txt\n# no\n\\#x\n",
        "sub/.gitignore": "!*.log\nlocal.txt\n/only.txt\n",
        "sub/deep/.gitignore": "*\n!x.py\n!.gitignore\n",
    }
    folders = ["", "sub/", "sub/deep/", "out/", "logs/", "a/b/", "a/b/c/", "cache/", "sub/cache/"]
    leaves = ["a.log", "keep.log", "keep.txt", "top.txt", "only.txt", "local.txt", "z.txt", "x.py", "#x", "out.d/f"]
    tree(tmp_path, {folder + leaf: "" for folder in folders for leaf in leaves})
    tree(tmp_path, rules)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    listed = subprocess.run(
        ["git", "-c", "core.quotePath=off", "ls-files", "--others", "--exclude-standard"],
        cwd=tmp_path,
        env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull},
        capture_output=True,
        text=True,
        check=True,
    )
    assert names(tmp_path) == sorted(listed.stdout.splitlines())


def test_links_inside_are_followed(tmp_path: Path) -> None:
    folder = tree(tmp_path / "code", {"lib/util.py": "u", "train.py": ""})
    (folder / "alias.py").symlink_to("lib/util.py")
    (folder / "more").symlink_to("lib")
    with open_bundle(folder) as bundle:
        assert bundle is not None
        with zipfile.ZipFile(bundle.path) as archive:
            assert archive.namelist() == ["alias.py", "lib/util.py", "more/util.py", "train.py"]
            assert archive.read("alias.py") == b"u"


@pytest.mark.parametrize(
    ("target", "said"),
    [("../secret", "leads out of"), ("/etc", "leads out of"), ("missing", "leads nowhere"), ("..", "leads out of")],
)
def test_links_to_elsewhere_are_refused_by_name(tmp_path: Path, target: str, said: str) -> None:
    folder = tree(tmp_path / "code", {"train.py": ""})
    (tmp_path / "secret").write_text("s")
    (folder / "link").symlink_to(target)
    with pytest.raises(BundleError, match=f"link {'link'}.*{said}.*weftignore"):
        names(folder)
    (folder / ".weftignore").write_text("link\n")
    assert names(folder) == [".weftignore", "train.py"]


def test_a_link_that_goes_round_is_refused(tmp_path: Path) -> None:
    folder = tree(tmp_path, {"sub/train.py": ""})
    (folder / "sub" / "again").symlink_to("../sub")
    with pytest.raises(BundleError, match="sub/again leads back"):
        names(folder)


def test_what_no_zip_can_hold_is_left_out_and_named(tmp_path: Path) -> None:
    folder = tree(tmp_path / "code", {"train.py": "", ".weftignore": "ignored\n"})
    before = digest(folder)
    for name in ("pipe", "ignored"):
        os.mkfifo(folder / name)
    (folder / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "run" / "agent.sock"))
        (folder / "link").symlink_to("run/agent.sock")
        with open_bundle(folder) as bundle:
            assert bundle is not None
            assert bundle.left_out == ("link (a socket)", "pipe (a pipe)", "run/agent.sock (a socket)")
            assert bundle.files == 2
            assert bundle.sha256 == before, "it is the same code"


def test_too_much_names_the_largest(tmp_path: Path) -> None:
    tree(tmp_path, {"train.py": ""})
    (tmp_path / "data.bin").write_bytes(random.Random(1).randbytes(3 << 20))
    with (
        pytest.raises(BundleError, match=r"more than 1 MiB.*data\.bin \(3 MiB\).*weftignore.*weft data put"),
        open_bundle(tmp_path, max_bytes=1 << 20),
    ):
        pass


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.bundle.MAX_FILES", 3)
    tree(tmp_path, dict.fromkeys("abcd", ""))
    with pytest.raises(BundleError, match="more than 3 files"):
        names(tmp_path)


def test_a_zip_is_sent_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "code.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("train.py", "print(1)")
    before = path.read_bytes()
    with open_bundle(path) as bundle:
        assert bundle is not None
        assert (bundle.path, bundle.size, bundle.files) == (path, len(before), None)
    assert path.read_bytes() == before


def test_what_is_neither_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"tar")
    for path, said in ((tmp_path / "x.tar", "neither a folder nor a zip"), (tmp_path / "no", "there is no")):
        with pytest.raises(BundleError, match=said), open_bundle(path):
            pass


def test_an_empty_folder_is_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "manifest.yml").write_text("name: x")
    with open_bundle(tmp_path, leave_out=tmp_path / "manifest.yml") as bundle:
        assert bundle is None
