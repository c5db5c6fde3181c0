"""`make audit`: its findings, and that it never takes a missing database for a clean one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements/constraints.txt").read_text()


def version(name: str) -> str:
    """The locked version of a Python package."""
    [found] = re.findall(rf"^{name}==(\S+)", LOCK, re.MULTILINE)
    return str(found)


def advisory(name: str, events: list[dict[str, str]], ecosystem: str = "PyPI", **more: Any) -> dict[str, Any]:
    kind = "ECOSYSTEM" if ecosystem == "PyPI" else "SEMVER"
    affected = {"package": {"ecosystem": ecosystem, "name": name}, "ranges": [{"type": kind, "events": events}]}
    return {"id": f"TEST-{name}", "summary": f"a hole in {name}", "affected": [affected], **more}


def database(folder: Path, python: list[dict[str, Any]], npm: list[dict[str, Any]] | None = None) -> Path:
    other = advisory("not-a-package-of-ours", [{"introduced": "0"}])
    folder.mkdir(parents=True, exist_ok=True)
    for ecosystem, entries in (("PyPI", python), ("npm", npm or [])):
        with zipfile.ZipFile(folder / f"{ecosystem}.zip", "w") as archive:
            for number, entry in enumerate([other, *entries]):
                archive.writestr(f"{number}.json", json.dumps(entry))
    return folder


def audit(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "requirements/audit"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_vulnerable_package_is_found_and_a_fixed_one_is_not(tmp_path: Path) -> None:
    found = audit(
        "--database",
        database(
            tmp_path,
            [
                advisory("HTTPX", [{"introduced": "0"}, {"fixed": "9999"}], aliases=["CVE-1"]),
                advisory("pyyaml", [{"introduced": "0"}, {"fixed": version("pyyaml")}]),
                advisory("rich", [{"introduced": "9999"}]),
                advisory("typer", [{"introduced": "0"}, {"last_affected": version("typer")}]),
                advisory("celery", [{"introduced": "0"}], withdrawn="2026-01-01T00:00:00Z"),
                advisory("torch", [{"introduced": "2.0"}]),
            ],
        ),
    )
    assert found.returncode == 1, found.stderr
    lines = found.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[:-1]] == [
        f"httpx {version('httpx')}",
        "torch 2.13.0",
        f"typer {version('typer')}",
    ]
    assert "TEST-HTTPX, CVE-1: a hole in HTTPX; fixed in: 9999; in requirements/constraints.txt" in lines[0]
    assert "trainer_images/pytorch/cpu.lock, trainer_images/pytorch/cuda.lock" in lines[1]
    assert lines[-1].endswith(" packages, 3 findings")


def test_a_version_may_be_listed_by_name(tmp_path: Path) -> None:
    listed = advisory("httpx", [])
    listed["affected"][0] |= {"ranges": [], "versions": [version("httpx")]}
    found = audit("--database", database(tmp_path, [listed]))
    assert found.returncode == 1
    assert found.stdout.startswith(f"httpx {version('httpx')}: TEST-httpx")


def test_the_dashboards_packages(tmp_path: Path) -> None:
    packages = json.loads((ROOT / "dashboard/package-lock.json").read_text())["packages"]
    react = packages["node_modules/react"]["version"]
    # A pre-release of the locked version is older than it.
    entries = [
        advisory("react", [{"introduced": "0.1.0"}, {"fixed": f"{react}-rc.1"}], "npm"),
        advisory("react-dom", [{"introduced": f"{react}-rc.1"}], "npm"),
    ]
    found = audit("--database", database(tmp_path, [], entries))
    assert found.returncode == 1
    assert [line.split(":")[0] for line in found.stdout.splitlines()[:-1]] == [f"react-dom {react}"]


def test_nothing_found(tmp_path: Path) -> None:
    found = audit("--database", database(tmp_path, []))
    assert (found.returncode, found.stderr) == (0, "")
    assert re.fullmatch(r"\d{3,} packages, 0 findings\n", found.stdout)


def test_without_a_database_it_says_that_nothing_was_checked(tmp_path: Path) -> None:
    for made in (False, True):
        if made:
            (tmp_path / "PyPI.zip").write_bytes(b"cut off")
        found = audit("--database", tmp_path)
        assert (found.returncode, found.stdout) == (3, "")
        [line] = found.stderr.splitlines()
        assert line.startswith(f"audit: NOT CHECKED: {'' if made else 'there is no '}{tmp_path / 'PyPI.zip'}")
    (tmp_path / "PyPI.zip").unlink()
    found = audit("--database", tmp_path, "--fetch", (tmp_path / "nowhere").as_uri())
    assert (found.returncode, found.stdout) == (3, "")
    assert "can't be fetched from file://" in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_the_database_is_fetched_once(tmp_path: Path) -> None:
    source = database(tmp_path / "made", [])
    for ecosystem in ("PyPI", "npm"):
        (tmp_path / "source" / ecosystem).mkdir(parents=True)
        (source / f"{ecosystem}.zip").rename(tmp_path / "source" / ecosystem / "all.zip")
    kept = tmp_path / "kept"
    assert audit("--database", kept, "--fetch", (tmp_path / "source").as_uri()).returncode == 0
    assert audit("--database", kept).returncode == 0
