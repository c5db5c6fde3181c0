"""The launcher ``slurm``: a batch script in learner 1, and the tasks that its ``srun`` starts in all learners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.trainer.agents import Agent, Launch, spec
from tests.trainer.api_double import ApiDouble
from tests.trainer.conftest import StartApi

from weft_trainer.errors import TrainerError
from weft_trainer.launchers import find_launcher
from weft_trainer.launchers.base import as_open_mpi
from weft_trainer.launchers.slurm import job_number
from weft_trainer.launchers.slurm_gang import Gang
from weft_trainer.launchers.slurm_hosts import expand, repeated
from weft_trainer.launchers.slurm_options import OptionError, lay_out, parse_options
from weft_trainer.launchers.slurm_scontrol import scontrol
from weft_trainer.launchers.slurm_srun import exported
from weft_trainer.launchers.slurm_tasks import file_name, translator
from weft_trainer.program.plan import Plan
from weft_trainer.spec import Peer, parse_spec

PEERS = [Peer(0, "10.0.0.1", (1001, 1002)), Peer(1, "10.0.0.2", (2001, 2002)), Peer(2, "10.0.0.3", (3001, 3002))]
GANG = Gang("s", 0, (("10.0.0.1", 1), ("10.0.0.2", 2), ("10.0.0.3", 3)))
SHARED = Gang("s", 0, (("127.0.0.1", 1), ("127.0.0.1", 2)))


# --- the plan ------------------------------------------------------------------------------------------------------


def plan(rank: int = 0, **changes: Any) -> Plan:
    given = {"gang_secret": "s", "memory": 3 << 30, **changes}
    parsed = parse_spec(spec("bash train.sh", rank=rank, learners=3, launcher="slurm", **given))
    return find_launcher("slurm").plan(parsed, PEERS[rank], PEERS)


def test_the_batch_script_runs_in_learner_1_alone() -> None:
    first, second = plan(env={"SLURM_NTASKS_PER_NODE": "4"}, gpus=4), plan(1)
    assert (first.processes[0].argv[-1], second.processes[0].argv[-1]) == (
        "bash train.sh",
        "weft_trainer.launchers.slurm_node",
    )
    env = first.processes[0].env
    number = str(job_number("job-1"))
    assert {name: value for name, value in env.items() if name.startswith("SLURM_")} == {
        "SLURM_JOB_ID": number,
        "SLURM_JOBID": number,
        "SLURM_JOB_NAME": "a job",
        "SLURM_CLUSTER_NAME": "weft",
        "SLURM_JOB_NUM_NODES": "3",
        "SLURM_NNODES": "3",
        "SLURM_JOB_NODELIST": "10.0.0.1,10.0.0.2,10.0.0.3",
        "SLURM_NODELIST": "10.0.0.1,10.0.0.2,10.0.0.3",
        "SLURM_SUBMIT_HOST": "10.0.0.1",
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_NTASKS": "12",
        "SLURM_NPROCS": "12",
        "SLURM_TASKS_PER_NODE": "4(x3)",
        "SLURM_CPUS_ON_NODE": "2",
        "SLURM_JOB_CPUS_PER_NODE": "2(x3)",
        "SLURM_GPUS_ON_NODE": "4",
        "SLURM_JOB_GPUS": "0,1,2,3",
        "SLURM_MEM_PER_NODE": "3072",
    }
    assert (first.slots, second.slots) == (4, 1)
    assert second.processes[0].env["SLURMD_NODENAME"] == "10.0.0.2"
    assert "SLURM_NTASKS" not in second.processes[0].env, "as in Slurm, unless a number of tasks is given"


def test_later_attempts_are_restarts_and_arrays_keep_the_jobs_name() -> None:
    env = plan(attempt=3, env={"SLURM_JOB_NAME": "train"}).processes[0].env
    assert (env["SLURM_RESTART_COUNT"], env["SLURM_JOB_NAME"]) == ("2", "train")


def test_the_number_of_a_job_is_always_the_same() -> None:
    numbers = {job_number(f"job-{n}") for n in range(200)}
    assert len(numbers) == 200
    assert {len(str(number)) for number in numbers} == {8}
    assert job_number("job-4k9x2m7qd1ze") == job_number("job-4k9x2m7qd1ze")


def test_jax_takes_it_for_no_other_cluster() -> None:
    [process] = as_open_mpi(plan(), {}).processes
    assert not [name for name in process.env if name.startswith(("OMPI_", "JAX_"))]


@pytest.mark.parametrize("value", ["0", "two", "-1", "1.5"])
def test_a_number_of_tasks_that_is_none(value: str) -> None:
    with pytest.raises(TrainerError, match=r"env\.SLURM_NTASKS_PER_NODE: expected a whole number"):
        plan(env={"SLURM_NTASKS_PER_NODE": value})


def test_a_gang_needs_a_secret() -> None:
    with pytest.raises(TrainerError, match="no secret"):
        plan(gang_secret="")


# --- lists of hosts, names of files, paths -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hosts", "names"),
    [
        ("10.0.0.1,10.0.0.2", ["10.0.0.1", "10.0.0.2"]),
        ("127.0.0.1,127.0.0.1", ["127.0.0.1", "127.0.0.1"]),
        ("node[1-3,7]", ["node1", "node2", "node3", "node7"]),
        ("n[08-10],login", ["n08", "n09", "n10", "login"]),
        ("r[1-2]n[1-2]-ib", ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]),
        ("", []),
    ],
)
def test_lists_of_hosts(hosts: str, names: list[str]) -> None:
    assert expand(hosts) == names


@pytest.mark.parametrize("hosts", ["node[1-", "node]1", "node[a-b]", "node[3-1]", "node[]"])
def test_invalid_lists_of_hosts(hosts: str) -> None:
    with pytest.raises(ValueError, match="invalid"):
        expand(hosts)


def test_repeated_numbers() -> None:
    assert [repeated(counts) for counts in ([2, 2, 1], [4], [1, 2, 2])] == ["2(x2),1", "4", "1,2(x2)"]


def test_patterns_in_names_of_files() -> None:
    env = {"SLURM_JOB_ID": "77", "SLURM_PROCID": "3", "SLURM_JOB_NAME": "train", "SLURMD_NODENAME": "10.0.0.1"}
    assert file_name("%x-%j_%3t.%N.log", env) == "train-77_003.10.0.0.1.log"
    assert file_name("100%%-%q%A", env) == "100%-%q"


def test_paths_of_another_learner_become_this_learners() -> None:
    theirs = {"MODEL_DIR": ["/run/1/model", "/real/1/model"], "VIRTUAL_ENV": ["/run/1/venv"], "DATA_DIR": ["/data"]}
    here = translator(theirs, {"MODEL_DIR": "/run/2/model", "VIRTUAL_ENV": "/run/2/venv", "DATA_DIR": "/data"})
    assert here("/run/1/venv/bin:/run/1/model/bin:/usr/bin") == "/run/2/venv/bin:/run/2/model/bin:/usr/bin"
    assert here("--out=/real/1/model --in=/run/1/model-2") == "--out=/run/2/model --in=/run/1/model-2"


def test_variables_that_tasks_get() -> None:
    base, now = {"A": "1", "B": "2", "C": "3"}, {"A": "1", "B": "9", "D": "4"}
    assert exported("ALL", base, now) == {"C": None, "B": "9", "D": "4"}
    assert exported("NONE", base, now) == {}
    assert exported("D,E=5", base, now) == {"D": "4", "E": "5"}
    assert exported("ALL,E=5", base, now) == {"C": None, "B": "9", "D": "4", "E": "5"}


def test_scontrol(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "10.0.0.1,10.0.0.2")
    monkeypatch.setenv("SLURM_JOB_ID", "12345678")
    assert [scontrol(words) for words in (["show", "hostnames"], ["show", "hostname", "a[1-2]"])] == [0, 0]
    assert capsys.readouterr().out.split() == ["10.0.0.1", "10.0.0.2", "a1", "a2"]
    assert scontrol(["show", "job", "12345678", "-o"]) == 0
    assert "JobId=12345678 NodeList=10.0.0.1,10.0.0.2 JobState=RUNNING" in capsys.readouterr().out
    for words, error in (
        (["show", "job", "5"], "job 5 is not this job, 12345678"),
        (["requeue", "12345678"], "`retries` in the manifest"),
        (["show", "nodes"], "show nodes: accepted is show hostnames"),
        (["show", "hostnames", "a["], "invalid list of hosts"),
    ):
        assert scontrol(words) == 1
        assert error in capsys.readouterr().err


# --- the options of srun -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "env", "ranks", "counts"),
    [
        ("x", {}, (0, 1, 2), (1, 1, 1)),
        ("x", {"SLURM_NTASKS_PER_NODE": "2"}, (0, 1, 2), (2, 2, 2)),
        ("-N 1 x", {"SLURM_NTASKS_PER_NODE": "2"}, (0,), (2,)),
        ("-N2 -n2 x", {}, (0, 1), (1, 1)),
        ("--nodes=1 --ntasks=1 x", {}, (0,), (1,)),
        ("--ntasks 2 x", {}, (0, 1), (1, 1)),
        ("-n5 x", {}, (0, 1, 2), (2, 2, 1)),
        ("-n4 --ntasks-per-node=2 x", {}, (0, 1), (2, 2)),
        ("-w 10.0.0.2 x", {}, (1,), (1,)),
        ("-w 10.0.0.[2-3] x", {}, (1, 2), (1, 1)),
        ("-N1 -w learner-3 x", {}, (2,), (1,)),
        ("-N2 -w 10.0.0.2 x", {}, (0, 1), (1, 1)),
        ("--exclude 10.0.0.1 x", {}, (1, 2), (1, 1)),
        ("--relative=1 -N1 x", {}, (1,), (1,)),
        ("--nod 2 x", {"SLURM_NTASKS_PER_NODE": ""}, (0, 1), (1, 1)),
    ],
)
def test_the_tasks_of_a_step(words: str, env: dict[str, str], ranks: Sequence[int], counts: Sequence[int]) -> None:
    layout = lay_out(parse_options(words.replace("--nod ", "--nodes ").split(), env), GANG)
    assert (layout.ranks, layout.counts) == (ranks, counts)


def test_options_end_with_the_command() -> None:
    options = parse_options(["-lK0", "--export=ALL,A=1", "-ofile", "--mpi=none", "python", "-n", "3"], {})
    assert options.values == {"label": "1", "kill-on-bad-exit": "0", "export": "ALL,A=1", "output": "file"}
    assert options.command == ("python", "-n", "3")
    assert options.ineffective == ("--mpi=none",)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("", "no command"),
        ("-N", "-N lacks its value"),
        ("--ntask=2 x", "did you mean --ntasks"),
        ("--frobnicate x", "unknown option --frobnicate"),
        ("-N2 -Z x", "unknown option -Z"),
        ("--label=3 x", "--label has no value"),
        ("-N two x", "--nodes: expected a whole number from 1, found 'two'"),
        ("-N 4 x", "4 nodes are requested, and 3 are available"),
        ("-n9 --ntasks-per-node=2 x", "5 nodes are requested"),
        ("-N1 -n3 --ntasks-per-node=2 x", "3 tasks do not fit on 1 nodes"),
        ("-w 10.0.0.9 x", "10.0.0.9 is no node of this job"),
        ("-x 10.0.0.[1-3] x", "no learner is left"),
    ],
)
def test_options_that_are_refused(words: str, error: str) -> None:
    with pytest.raises(OptionError) as caught:
        lay_out(parse_options(words.split(), {}), GANG)
    assert error in str(caught.value)


def test_learners_that_share_an_address_are_named_by_number() -> None:
    with pytest.raises(OptionError, match="name learner-1, learner-2 instead"):
        lay_out(parse_options(["-w", "127.0.0.1", "x"], {}), SHARED)
    assert lay_out(parse_options(["-w", "127.0.0.1,127.0.0.1", "x"], {}), SHARED).ranks == (0, 1)
    assert lay_out(parse_options(["-w", "learner-2", "x"], {}), SHARED).ranks == (1,)


# --- real learners -------------------------------------------------------------------------------------------------


def job(start_api: StartApi, launch: Launch, script: str, **changes: Any) -> tuple[ApiDouble, list[Agent]]:
    api = start_api(script, learners=2, launcher="slurm", **changes)
    return api, [launch(api, rank) for rank in range(2)]


def completed(start_api: StartApi, launch: Launch, script: str, **changes: Any) -> tuple[list[str], list[str]]:
    """The lines of both learners."""
    api, agents = job(start_api, launch, script, **changes)
    assert [agent.wait() for agent in agents] == [0, 0], [agent.log.read_text() for agent in agents]
    return sorted(api.learners[0].lines), sorted(api.learners[1].lines)


def test_srun_starts_tasks_in_all_learners(start_api: StartApi, launch: Launch) -> None:
    show = "echo $SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURM_NTASKS $SLURM_STEP_NODELIST"
    script = f"echo batch $SLURM_NTASKS; scontrol show hostnames $SLURM_JOB_NODELIST; srun -l bash -c '{show}'; echo $?"
    first, second = completed(start_api, launch, script, env={"SLURM_NTASKS_PER_NODE": "2"})
    hosts = "127.0.0.1,127.0.0.1"
    assert first == sorted(["batch 4", *hosts.split(","), f"0: 0 0 0 4 {hosts}", f"1: 1 1 0 4 {hosts}", "0"])
    assert second == [f"2: 2 0 1 4 {hosts}", f"3: 3 1 1 4 {hosts}"]


def test_a_script_without_srun_runs_once(start_api: StartApi, launch: Launch) -> None:
    assert completed(start_api, launch, "echo once $LEARNER_ID") == (["once 1"], [])


def test_tasks_have_the_variables_of_the_script_and_their_own_learners_folders(
    start_api: StartApi, launch: Launch
) -> None:
    script = (
        "export LR=0.1 OUT=$RESULT_DIR/out; mkdir sub; cp -r sub $JOB_STATE_DIR/; cd $JOB_STATE_DIR/..; "
        "srun --export=ALL,SEED=7 --chdir=$MODEL_DIR bash -c "
        "'[ $PWD = $MODEL_DIR ] && [ $OUT = $RESULT_DIR/out ] && [ $0 = $PWD/x ] && echo $LEARNER_ID $LR $SEED' "
        "$MODEL_DIR/x"
    )
    assert completed(start_api, launch, script) == (["1 0.1 7"], ["2 0.1 7"])


def test_steps_run_side_by_side_on_learners_of_their_own(start_api: StartApi, launch: Launch) -> None:
    script = (
        "srun -N1 -w learner-2 bash -c 'echo $SLURM_PROCID $SLURM_NNODES a' & "
        "srun -N1 -n2 -w learner-1 bash -c 'echo $SLURM_PROCID $SLURM_NNODES b' & wait"
    )
    assert completed(start_api, launch, script) == (["0 1 b", "1 1 b"], ["0 1 a"])


def test_standard_input_goes_to_every_task(start_api: StartApi, launch: Launch) -> None:
    assert completed(start_api, launch, "srun bash <<'END'\necho $SLURM_PROCID\nEND") == (["0"], ["1"])


def test_files_for_the_output(start_api: StartApi, launch: Launch) -> None:
    script = "srun -n2 -o out-%t.txt bash -c 'echo hello $SLURM_PROCID'; srun bash -c 'cat out-*.txt'"
    assert completed(start_api, launch, script) == (["hello 0"], ["hello 1"])


def test_gpus_of_each_task(start_api: StartApi, launch: Launch) -> None:
    show = "bash -c 'echo $SLURM_PROCID ${CUDA_VISIBLE_DEVICES-all}'"
    script = f"srun --gpus-per-task=2 {show}; srun -n1 {show}; srun --gpus-per-task=3 {show} || echo refused"
    first, second = completed(start_api, launch, script, gpus=4, env={"SLURM_NTASKS_PER_NODE": "2"})
    assert {"0 0,1", "1 2,3", "0 all", "refused", "0 0,1,2"} <= set(first)
    assert {"2 0,1", "3 2,3"} <= set(second)
    assert any("3 GPUs for each task are requested, and the learner has 4" in line for line in first)


def test_srun_returns_the_highest_exit_code(start_api: StartApi, launch: Launch) -> None:
    api, agents = job(start_api, launch, "srun bash -c 'exit $((SLURM_PROCID * 3))'")
    assert agents[0].wait() == 3
    assert "srun: error: learner 2 (127.0.0.1), task 1: exit code 3" in api.learners[0].lines
    agents[1].terminate()
    assert agents[1].wait() == 143, "the blame is learner 1's"


def test_the_end_of_a_task_by_a_signal_or_a_missing_program(start_api: StartApi, launch: Launch) -> None:
    script = "srun -n1 bash -c 'kill -9 $$'; echo $?; srun -n1 nothing-of-this-name; echo $?; srun -n1 /; echo $?; true"
    first, _ = completed(start_api, launch, script)
    assert {"137", "127", "126"} <= set(first)
    assert "srun: error: learner 1 (127.0.0.1), task 0: killed by signal 9 (SIGKILL)" in first
    assert "srun: error: learner 1 (127.0.0.1), task 0: nothing-of-this-name: No such file or directory" in first


def test_a_task_that_fails_ends_the_others_if_it_is_to(start_api: StartApi, launch: Launch) -> None:
    script = "srun -K bash -c '[ $SLURM_PROCID = 1 ] && exit 4; sleep 1000'; echo code $?"
    first, _ = completed(start_api, launch, script)
    assert "code 4" in first


def test_signals_are_forwarded(start_api: StartApi, launch: Launch) -> None:
    task = 'trap "echo heard; exit 0" USR1; touch $JOB_STATE_DIR/up; while :; do sleep 0.05; done'
    script = (
        f"srun -N1 -n1 bash -c '{task}' & until [ -e $JOB_STATE_DIR/up ]; do sleep 0.05; done; kill -USR1 $!; wait $!"
    )
    first, _ = completed(start_api, launch, script)
    assert "heard" in first  # bash may also say that the signal has ended its sleep


def test_a_stop_reaches_each_task_once(start_api: StartApi, launch: Launch) -> None:
    trap = r'trap "n=\$((n+1)); echo term \$n" TERM'
    task = f"n=0; {trap}; echo up; while [ $n = 0 ]; do sleep 0.05; done; sleep 2; echo $n"
    api, agents = job(start_api, launch, f"srun bash -c '{task}'")
    api.wait_for(lambda: all("up" in api.learners[rank].lines for rank in range(2)))
    for agent in agents:
        agent.terminate()
    assert [agent.wait() for agent in agents] == [143, 143]
    for rank in range(2):
        lines = api.learners[rank].lines
        assert [line for line in lines if line.startswith("term")] == ["term 1"], lines


def test_a_step_of_a_killed_srun_is_ended(start_api: StartApi, launch: Launch) -> None:
    task = 'trap "touch $JOB_STATE_DIR/ended; exit 0" TERM; touch $JOB_STATE_DIR/up; while :; do sleep 0.05; done'
    until = "until [ -e $JOB_STATE_DIR/{0} ]; do sleep 0.05; done"
    script = f"srun -N1 -n1 bash -c '{task}' & {until.format('up')}; kill -9 $!; {until.format('ended')}; echo ended"
    first, _ = completed(start_api, launch, script)
    assert "ended" in first


def test_a_node_serves_only_its_own_gang(start_api: StartApi, launch: Launch) -> None:
    script = (
        'export WEFT_SLURM=$(echo $WEFT_SLURM | sed \'s/"secret": "...../"secret": "wrong/\'); '
        "srun echo hello; echo code $?; true"
    )
    first, second = completed(start_api, launch, script)
    assert "code 1" in first
    assert "hello" not in first + second


def test_a_failed_script_fails_learner_1(start_api: StartApi, launch: Launch) -> None:
    api, agents = job(start_api, launch, "echo no >&2; exit 5")
    assert agents[0].wait() == 5
    assert api.learners[0].exit_reason == "exit code 5"
    agents[1].terminate()
    assert agents[1].wait() == 143
