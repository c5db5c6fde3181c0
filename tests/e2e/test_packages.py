"""Packages that the image lacks: resolved and installed once, by a job of the project, and seen by its jobs alone."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.stack import Stack, embedded_s3, lines, manifest
from tests.git_server import Repository, git_server
from tests.wheels import make_wheel, private_index

import weft
from weft import Job


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A folder of code with two wheels, of which the first needs the second."""
    folder = tmp_path / "code"
    make_wheel(folder / "wheels", "weft-alpha", "1.2", ["weft-beta>=2"], program=True)
    make_wheel(folder / "wheels", "weft-beta", "2.5")
    (folder / "say.py").write_text(
        "import os, sys\n"
        "import weft_alpha, weft_beta, numpy\n"
        "print('versions', weft_alpha.__version__, weft_beta.__version__)\n"
        "print('overlay', os.path.dirname(os.path.dirname(weft_alpha.__file__)))\n"
        "print('numpy', os.path.realpath(numpy.__file__))\n"
    )
    return folder


def job(command: str, packages: list[str], **framework: Any) -> dict[str, Any]:
    asked = {"name": "python", "command": command, "packages": packages, **framework}
    return manifest(command, framework=asked)


def events(found: Job, kind: str = "packages") -> list[str]:
    return [event.message for event in found.events() if event.kind == kind]


def packages(found: Job) -> dict[str, Any]:
    shown: dict[str, Any] = found.refresh().raw["packages"]
    return shown


def test_a_job_gets_its_packages_and_the_next_one_needs_no_build(stack: Stack, code: Path) -> None:
    wanted = job("python say.py && weft-alpha", ["weft-alpha"], wheels="wheels/*.whl")
    first = stack.train(wanted, code)
    assert first.wait().state == "COMPLETED", first.refresh().reason
    said = lines(first)
    assert said[0] == "versions 1.2 2.5"
    assert "/overlays/" in said[1]
    assert "/environments/" in said[2], "the image's own packages are not copied"
    assert said[3] == "1.2", "its command is on the PATH"
    shown = packages(first)
    assert [(pin["name"], pin["version"]) for pin in shown["lock"]] == [("weft-alpha", "1.2"), ("weft-beta", "2.5")]
    told = events(first)
    assert told[0] == f"packages: job {shown['build']} builds them"
    assert told[-1] == "packages: 2 packages: weft-alpha 1.2, weft-beta 2.5"
    # Another program, with the same packages.
    (code / "say.py").write_text("import weft_alpha\nprint('again', weft_alpha.__version__)\n")
    second = stack.train(wanted, code)
    assert second.wait().state == "COMPLETED"
    assert lines(second)[0] == "again 1.2"
    assert packages(second) == shown
    assert events(second) == ["packages: built before, 2 packages: weft-alpha 1.2, weft-beta 2.5"]
    listed = [found.id for found in stack.client.jobs.list()]
    assert first.id in listed
    assert shown["build"] not in listed, "a build is no job of the user's"
    build = stack.client.jobs.get(shown["build"])
    assert build.state == "COMPLETED", "but can be looked at"
    assert any(line.startswith("Installed 2 packages") for line in lines(build))


def test_a_rerun_has_the_versions_of_the_first_run(stack: Stack, code: Path) -> None:
    wanted = job("python say.py", ["weft-alpha"], wheels="wheels/*.whl")
    make_wheel(code / "wheels", "weft-beta", "2.6", text="OWN = 'rerun'\n")
    first = stack.train(wanted, code)
    assert first.wait().state == "COMPLETED"
    again = first.rerun()
    assert again.wait().state == "COMPLETED"
    assert lines(again)[0] == lines(first)[0] == "versions 1.2 2.6"
    assert packages(again)["build"] == packages(first)["build"]


def test_jobs_that_come_at_once_wait_for_one_build(stack: Stack, code: Path) -> None:
    make_wheel(code / "wheels", "weft-beta", "2.7")
    wanted = job("python say.py", ["weft-alpha"], wheels="wheels/*.whl") | {"learners": 2, "cpus": 0.1}
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: stack.train(wanted, code), range(4)))
    assert [waiting.wait().state for waiting in found] == ["COMPLETED"] * 4
    assert len({packages(ended)["build"] for ended in found}) == 1
    for ended in found:
        assert lines(ended, 1)[0] == lines(ended, 2)[0] == "versions 1.2 2.7"
    assert len({lines(ended, learner)[1] for ended in found for learner in (1, 2)}) == 1, (
        "unpacked once on this machine"
    )


def test_what_a_command_installs_is_its_own(stack: Stack, code: Path) -> None:
    installs = "pip install --quiet --no-index --no-deps wheels/weft_beta-2.5-py3-none-any.whl"
    show = "import weft_beta; print('has', weft_beta.__version__)"
    first = stack.train(manifest(f'{installs} && python -c "{show}"'), code)
    assert first.wait().state == "COMPLETED", first.refresh().reason
    assert "has 2.5" in lines(first)
    second = stack.train(manifest(f'python -c "{show}"'), code)
    assert second.wait(check=False).state == "FAILED"
    assert "No module named 'weft_beta'" in " ".join(lines(second))


def test_a_job_can_not_write_what_jobs_share(stack: Stack, code: Path) -> None:
    where = "python -c 'import weft_alpha; print(weft_alpha.__file__)'"
    shared = f"$(dirname $(dirname $WEFT_IMAGE_PYTHON)) $(dirname $({where}))"
    show = f"for place in {shared}; do touch $place/of-a-job; done; {where}"
    found = stack.train(job(show, ["weft-alpha"], wheels="wheels/*.whl"), code)
    assert found.wait().state == "COMPLETED", found.refresh().reason
    said = lines(found)
    assert sum("Read-only file system" in line for line in said) == 2, said
    assert not list(Path(said[-1]).parent.glob("of-a-job"))


def test_wheels_come_from_a_data_store(stack: Stack, code: Path) -> None:
    stack.client.data.put(code / "wheels", "default:wheels/team")
    kept = embedded_s3(stack)
    connection = {
        "auth_url": kept["AWS_ENDPOINT_URL"],
        "user_name": kept["AWS_ACCESS_KEY_ID"],
        "password": kept["AWS_SECRET_ACCESS_KEY"],
    }
    ways: list[dict[str, Any]] = [{"datastore": "default"}, {"connection": connection}]
    for number, way in enumerate(ways):
        wanted = job("weft-alpha", ["weft-alpha"])
        wanted["data_stores"] = [{"id": "s3", **way, "wheels": {"container": "wheels", "prefix": "team"}}]
        found = stack.train(wanted, None)
        assert found.wait().state == "COMPLETED", found.refresh().reason
        assert lines(found) == ["1.2"], f"way {number}"
        assert [pin["name"] for pin in packages(found)["lock"]] == ["weft-alpha", "weft-beta"]
        told = f"{stack.client.jobs.get(packages(found)['build']).raw} {found.raw}"
        assert kept["AWS_SECRET_ACCESS_KEY"] not in told
    wanted["data_stores"][0]["wheels"] = {"container": "nobody-made-it"}
    with pytest.raises(weft.WeftError, match=r"data_stores\[0\]\.wheels.*nobody-made-it"):
        stack.train(wanted, None)


def test_requirements_and_wheels_are_files_of_a_repository(stack: Stack, code: Path, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "git" / "with-wheels")
    shutil.copytree(code, repository.folder / "job")
    first = repository.commit({"job/requirements.txt": "weft-alpha\n"})
    with git_server(tmp_path / "git") as server:
        wanted = job("python say.py", [], requirements="requirements.txt", wheels="wheels/*.whl")
        wanted["framework"].pop("packages")
        wanted["repo"] = {"url": f"{server.url}/with-wheels/.git", "ref": "main", "path": "job"}
        found = stack.train(wanted, None)
        assert found.wait().state == "COMPLETED", found.refresh().reason
        assert lines(found)[0] == "versions 1.2 2.5"
        same = stack.train(wanted, None)
        assert same.wait().state == "COMPLETED"
        assert packages(same)["build"] == packages(found)["build"], "the same commit has the same packages"
        second = repository.commit({"job/requirements.txt": "weft-alpha\nweft-delta\n"})
        failed = stack.train(wanted, None)
        assert failed.wait(check=False).state == "FAILED"
    assert first != second
    assert "requirements.txt line 2: weft-delta" in failed.refresh().reason


def test_requirements_that_do_not_fit_are_a_clear_error_before_anything_runs(stack: Stack, code: Path) -> None:
    make_wheel(code / "wheels", "weft-gamma", "1.0", ["numpy<1"])
    (code / "requirements.txt").write_text("# what it needs\nweft-beta\nweft-gamma==1.0  # of ours\n")
    wanted = job("python say.py", [], requirements="requirements.txt", wheels="wheels/*.whl")
    wanted["framework"].pop("packages")
    failed = stack.train(wanted, code)
    assert failed.wait(check=False).state == "FAILED"
    found = failed.refresh()
    assert found.attempt == 0, "no learner of it has started"
    assert found.raw["error_code"] == "C102"
    assert "requirements.txt line 3: weft-gamma==1.0" in found.reason
    assert "numpy<1" in found.reason
    assert "Of the image, numpy>=2,<3 stays" in found.reason
    # What the image's lock shows is refused at once.
    refusal = r"framework\.packages\[0\]: image pytorch:2\.13\.0 has torch 2\.13\.0, which stays"
    with pytest.raises(weft.WeftError, match=refusal):
        stack.train(manifest("true", framework={"name": "pytorch", "command": "true", "packages": ["torch==2.5"]}))
    with pytest.raises(weft.WeftError, match=r"framework\.requirements: the code has no file more/requirements\.txt"):
        stack.train(job("true", [], requirements="more/requirements.txt"), code)


def test_a_private_index_is_asked_with_its_secret(stack: Stack, code: Path, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "built", "weft-secret-sauce", "3.1")
    stack.client.secrets.set("index-password", "team:s3cret-of-the-index")
    with private_index(tmp_path / "index", [wheel], "team", "s3cret-of-the-index") as index:
        asked = {"url": index.url, "secret": "index-password"}
        show = "import weft_secret_sauce; print('has', weft_secret_sauce.__version__)"
        found = stack.train(job(f'python -c "{show}"', ["weft-secret-sauce"], index=asked), code)
        assert found.wait().state == "COMPLETED", found.refresh().reason
    assert lines(found)[0] == "has 3.1"
    assert any(path.endswith(".whl") for path in index.asked)
    build = stack.client.jobs.get(packages(found)["build"])
    told = " ".join([*lines(build), *events(found), str(build.raw), str(found.raw)])
    assert "s3cret-of-the-index" not in told
