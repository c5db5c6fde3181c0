"""What a program says, wherever it says it, arrives."""

from __future__ import annotations

from tests.trainer.agents import Launch
from tests.trainer.conftest import StartApi


def test_log_files_of_the_log_folder_are_log(start_api: StartApi, launch: Launch) -> None:
    api = start_api(
        "mkdir -p $LOG_DIR/worker; echo from the file >> $LOG_DIR/training-log.txt;"
        "echo from a worker > $LOG_DIR/worker/user_log.txt; echo ignored > $LOG_DIR/other.txt;"
        "printf 'no line feed' >> $LOG_DIR/training-log.txt; echo from stdout"
    )
    assert launch(api).wait() == 0
    lines = api.learners[0].lines
    assert sorted(lines) == ["[worker] from a worker", "from stdout", "from the file", "no line feed"]
    assert api.objects["results/learner-1/training-log.txt"].decode().splitlines() == lines


def test_a_log_file_that_starts_anew(start_api: StartApi, launch: Launch) -> None:
    api = start_api(
        "log=$LOG_DIR/user_log.txt; echo first, and long enough > $log; while ! [ -e go ]; do sleep 0.02; done;"
        "echo second > $log"
    )
    agent = launch(api)
    api.wait_for(lambda: bool(api.learners[0].lines))
    (agent.workdir / "model" / "go").touch()
    assert agent.wait() == 0
    assert api.learners[0].lines == ["first, and long enough", "second"]


def test_a_line_arrives_while_the_program_goes_on(start_api: StartApi, launch: Launch) -> None:
    api = start_api("python -c \"print('epoch 1'); input()\" || echo ended; sleep 1000")
    agent = launch(api)
    api.wait_for(lambda: "epoch 1" in api.learners[0].lines)
    api.stop = {"stop": True, "grace_seconds": 0}
    agent.wait()


def test_much_output_in_order(start_api: StartApi, launch: Launch) -> None:
    api = start_api("seq 1 50000")
    assert launch(api).wait() == 0
    assert api.learners[0].lines == [str(number) for number in range(1, 50_001)]
    assert api.problems == []
