"""The options of ``sbatch``: which ones there are, and how they are written."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from weft.errors import InvalidScript

_SHORT = {
    "J": "job-name",
    "N": "nodes",
    "n": "ntasks",
    "c": "cpus-per-task",
    "G": "gpus",
    "t": "time",
    "a": "array",
    "d": "dependency",
    "o": "output",
    "e": "error",
    "D": "chdir",
    "p": "partition",
    "A": "account",
    "q": "qos",
    "C": "constraint",
    "w": "nodelist",
    "x": "exclude",
    "L": "licenses",
    "M": "clusters",
    "m": "distribution",
    "B": "extra-node-info",
    "H": "hold",
    "b": "begin",
    "i": "input",
    "k": "no-kill",
    "s": "oversubscribe",
    "O": "overcommit",
    "S": "core-spec",
    "F": "nodefile",
    "v": "verbose",
    "Q": "quiet",
    "W": "wait",
}
_EFFECTIVE = """
    job-name= comment= nodes= ntasks= ntasks-per-node= ntasks-per-gpu= cpus-per-task= cpus-per-gpu= gres= gpus=
    gpus-per-node= gpus-per-task= mem= mem-per-cpu= mem-per-gpu= time= array= export= output= error= chdir= parsable
    dependency=
"""
_WITHOUT_EFFECT = """
    partition= account= qos= constraint= nodelist= exclude= reservation= licenses= clusters= cluster-constraint=
    distribution= extra-node-info= exclusive=? oversubscribe overcommit contiguous spread-job use-min-nodes switches=
    core-spec= thread-spec= sockets-per-node= cores-per-socket= threads-per-core= ntasks-per-socket= ntasks-per-core=
    hint= mincpus= tmp= mem-bind= gpu-bind= gpu-freq= cpu-freq= acctg-freq= profile= power= network= no-kill=?
    kill-on-invalid-dep= mail-type= mail-user= wckey= uid= gid= nice=? priority= requeue no-requeue open-mode=
    propagate=? get-user-env=? export-file= signal= time-min= deadline= delay-boot= prefer= reboot mcs-label= verbose
    quiet wait wait-all-nodes= ignore-pbs stepmgr
"""
_REFUSED = {
    "hold": "Weft starts a job as soon as there is room: submit it when it is to run",
    "begin=": "Weft starts a job as soon as there is room: submit it when it is to run",
    "wrap=": "write the command into a script",
    "input=": "redirect the input of the command in the script",
    "test-only": "`--save` writes the manifest, and `weft validate` checks it",
    "nodefile=": "give the number of nodes, by --nodes",
    "gpus-per-socket=": "give the GPUs of each node, by --gpus-per-node",
    "container=": "the framework decides the image, by --framework",
    "container-image=": "the framework decides the image, by --framework",
    "tres-per-task=": "give the GPUs and CPUs, by --gpus-per-task and --cpus-per-task",
    "bb=": "a learner has no burst buffer",
    "bbf=": "a learner has no burst buffer",
}
REASONS = {
    "kill-on-invalid-dep": "a job that can't start any more fails",
    "signal": "a job that is halted gets SIGTERM, and time to save",
    "requeue": "Weft restarts a job that the platform has ended; `--set retries=N` restarts one that has failed",
    "wait": "`--follow` waits for the end of the job",
    "mail-type": "`weft show` and the dashboard tell the state",
    "nodelist": "a profile of the server's settings chooses nodes: `--set profile=NAME`",
    "constraint": "a profile of the server's settings chooses nodes: `--set profile=NAME`",
    "partition": "an engine or a profile chooses where a job runs: `--set engine=NAME`, `--set profile=NAME`",
    "priority": "`--set priority=N` orders Weft's queue, 0 to 100",
    "nice": "`--set priority=N` orders Weft's queue, 0 to 100",
}


def _kinds(text: str) -> dict[str, str]:
    """Names, and whether each has a value: ``=`` always, ``=?`` perhaps, else never."""
    return {word.rstrip("=?"): word[len(word.rstrip("=?")) :] for word in text.split()}


EFFECTS = _kinds(_EFFECTIVE)
REFUSALS = {name.rstrip("="): reason for name, reason in _REFUSED.items()}
_KINDS = EFFECTS | _kinds(_WITHOUT_EFFECT) | _kinds(" ".join(_REFUSED))


@dataclass(frozen=True)
class Directive:
    """An option of ``sbatch``.

    Attributes:
        name: its long name.
        place: where it was found, such as ``train.sh:3``; empty: on the command line.
    """

    name: str
    value: str
    place: str = ""

    def __str__(self) -> str:
        place = f"{self.place}: " if self.place else ""
        return f"{place}--{self.name}" + (f"={self.value}" if self.value else "")


def take_option(words: list[str], place: str = "") -> list[Directive]:
    """Take the option at the beginning of ``words``, with its value; several, if it is ``-vN2``.

    Raises:
        InvalidScript: Slurm has no such option, or its value is missing.
    """
    word, where = words.pop(0), f"{place}: " if place else ""

    def following() -> str:
        if not words:
            raise InvalidScript(f"{where}{word} lacks its value")
        return words.pop(0)

    if word.startswith("--"):
        given, equals, value = word[2:].partition("=")
        name = _complete(given, where)
        if _KINDS[name] == "=" and not equals:
            value = following()
        elif _KINDS[name] == "" and equals:
            raise InvalidScript(f"{where}{word}: --{name} has no value")
        return [Directive(name, value, place)]
    found, letters = [], word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        if letter not in _SHORT:
            raise InvalidScript(f"{where}unknown directive -{letter}")
        name, value = _SHORT[letter], ""
        if _KINDS[name] == "=":
            value, letters = letters.removeprefix("=") or following(), ""
        found.append(Directive(name, value, place))
    return found


def _complete(given: str, where: str) -> str:
    """The name of an option; Slurm accepts the beginning of a name."""
    if given in _KINDS:
        return given
    longer = [name for name in _KINDS if given and name.startswith(given)]
    if len(longer) == 1:
        return longer[0]
    near = longer or difflib.get_close_matches(given, _KINDS, 1)
    hint = f": did you mean --{' or --'.join(near)}?" if near else ""
    raise InvalidScript(f"{where}unknown directive --{given}{hint}")
