"""The files that a command names: only those that are certain are reported."""

from __future__ import annotations

import pytest

from weft_core.command import Named, named_paths, needed_files


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("python train.py --epochs 5", ["train.py"]),
        ("python3 convolutional_network.py --images ${DATA_DIR}/i.gz", ["convolutional_network.py"]),
        ("/usr/bin/python3.12 -u -W ignore -X dev src/train.py", ["src/train.py"]),
        ("pip install keras && python3 keras-test/mnist_cnn.py", ["keras-test/mnist_cnn.py"]),
        ("python -m pip install -r requirements.txt; python train.py", ["train.py"]),
        ("bash run.sh", ["run.sh"]),
        ("sh -x scripts/run", ["scripts/run"]),
        ("./x", ["x"]),
        ("bin/train --fast", ["bin/train"]),
        ('"$MODEL_DIR/train.sh" 2>&1', ["train.sh"]),
        ("python ${MODEL_DIR}/train.py", ["train.py"]),
        ("cd src && python train.py", ["src/train.py"]),
        ("cd $MODEL_DIR/src; ./run.sh", ["src/run.sh"]),
        ("set -e\n# the program\nexport LR=0.1\npython \\\n  train.py", ["train.py"]),
        ("LR=0.1 CUDA=1 python train.py", ["train.py"]),
        ("exec nice -n 5 python train.py", ["train.py"]),
        ("horovodrun -np 2 python train.py", ["train.py"]),
        ("torchrun --nproc_per_node 2 train.py", ["train.py"]),
        ("python -m torch.distributed.launch --nproc_per_node=2 train.py --lr 1", ["train.py"]),
        ("python train.py > $LOG_DIR/log", ["train.py"]),
        ("python train.py | tee log", ["train.py"]),
        ("python a.py && python b.py", ["a.py"]),
    ],
)
def test_files_that_a_command_needs(command: str, files: list[str]) -> None:
    assert needed_files(command) == files


@pytest.mark.parametrize(
    "command",
    [
        "echo hello",
        "nvidia-smi",
        "mytool train.py",  # an image's own: it may make that file
        "python /opt/app/train.py",
        "/opt/app/run.sh",
        "python $DATA_DIR/train.py",
        "$PRETRAINED_DIR/run.sh",
        "python ~/train.py",
        "python ../train.py",
        "python -c 'import train'",
        "python -uc 'print(1)' train.py",
        "python -m train",
        "python -m pytest test_a.py",
        "python - train.py",
        "python",
        "bash -c './x'",
        "bash -lc 'python train.py'",
        "bash -s train.sh",
        "bash run",  # bash looks for it along PATH, too
        "curl -O https://example.org/train.py && python train.py",
        "git clone https://example.org/it.git && python it/train.py",
        "git clone https://example.org/it.git; cd it; python train.py",
        "cp /opt/train.py . ; python train.py",
        "echo 'print(1)' > train.py; python train.py",
        "cat <<END > train.py\nprint(1)\nEND\npython train.py",
        "pip install -t . tool && python tool.py",
        "cd /opt/app && python train.py",
        "cd $APP && python train.py",
        "cd && python train.py",
        "[ -f train.py ] && python train.py",
        "if [ -f train.py ]; then python train.py; fi",
        "for f in a.py b.py; do python $f; done",
        "test -f train.py && python train.py",
        "python train.py || python -m fallback",
        "(cd /opt && python train.py)",
        "export A=$(./make-it); python train.py",
        "python train-*.py",
        "python 'train.py",
        "# python train.py",
        "",
    ],
)
def test_nothing_is_needed_for_certain(command: str) -> None:
    assert needed_files(command) == []


def test_paths_that_may_be_meant() -> None:
    paths = [found.path for found in named_paths("./prepare.sh; python -m lib.train --config=conf/a.yml out && x/y")]
    module = ["lib.train", "lib/train.py", "lib/train/__main__.py"]
    assert paths == ["prepare.sh", "python", *module, "conf/a.yml", "out", "x/y"]
    named = named_paths("cd keras-test && cat mnist.py")
    assert named[0] == Named("keras-test", is_folder=True)
    assert named[-1] == Named("keras-test/mnist.py")
