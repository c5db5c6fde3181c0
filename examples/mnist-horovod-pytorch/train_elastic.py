"""Handwritten digits with PyTorch and Horovod on learners that come and go: train.py, written for `hvd.elastic`.

When a learner dies, Horovod takes the others back to the last commit and goes on with them; one that joins gets the
state from the first process. Only when the first learner dies do all start again, from the checkpoint.
"""

import argparse
import os
from pathlib import Path

import horovod.torch as hvd
import torch
from model import Net, read_digits
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

DATA = Path(os.environ["DATA_DIR"])
RESULTS = Path(os.environ["RESULT_DIR"])
CHECKPOINT = Path(os.environ["CHECKPOINT_DIR"]) / "checkpoint.pt"


def say(line: str) -> None:
    """Only the first process prints, for all of them: sums and averages over all processes."""
    if hvd.rank() == 0:
        print(line, flush=True)


def learning_rate(args, done: float) -> float:
    """`args.learning_rate` × processes, as so many times more digits go into each step; reached slowly, since a start
    at that speed may diverge, then down to 0 in a straight line. `done` counts epochs."""
    peak = args.learning_rate * hvd.size()
    if done < args.warmup_epochs:
        return args.learning_rate + (peak - args.learning_rate) * done / args.warmup_epochs
    return peak * (args.epochs - done) / (args.epochs - args.warmup_epochs)


def train(state, digits, args, device) -> None:
    """From wherever `state` is to the last epoch; Horovod calls it again after each change of the gang."""
    say(f"training with {hvd.size()} processes from epoch {state.epoch + 1}")
    while state.epoch < args.epochs:
        # A loader of its own each time: the sampler leaves out what was trained on before the last commit.
        loader = DataLoader(digits, args.batch_size, sampler=state.sampler)
        train_epoch(state, loader, args, device)
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)
        if hvd.rank() == 0:
            parts = {"model": state.model.state_dict(), "optimizer": state.optimizer.state_dict()}
            save({**parts, "epochs": state.epoch}, CHECKPOINT)
        state.commit()  # also looks whether learners have joined


def train_epoch(state, loader, args, device) -> None:
    state.model.train()
    loss_sum = right = digits = 0
    for step, (images, labels) in enumerate(loader):
        for group in state.optimizer.param_groups:
            group["lr"] = learning_rate(args, state.epoch + step / len(loader))
        images, labels = images.to(device), labels.to(device)
        state.optimizer.zero_grad()
        output = state.model(images)
        loss = functional.cross_entropy(output, labels)
        loss.backward()
        state.optimizer.step()  # first waits for the gradients' average over all processes
        loss_sum += loss.item() * len(labels)
        right += (output.argmax(dim=1) == labels).sum().item()
        digits += len(labels)
        state.sampler.record_batch(step, args.batch_size)
        if (step + 1) % args.commit_every == 0:
            state.commit()
    sums = torch.tensor([loss_sum, float(right), float(digits)])
    loss_sum, right, digits = hvd.allreduce(sums, op=hvd.Sum, name="epoch").tolist()
    say(f"epoch {state.epoch + 1}/{args.epochs}  loss {loss_sum / digits:.4f}  accuracy {right / digits:.4f}")


def test(model, device) -> tuple[float, int]:
    """Accuracy on the held-out digits, of which each process takes its share, and how many they are."""
    images, labels = (part[hvd.rank() :: hvd.size()].to(device) for part in read_digits(DATA, "t10k"))
    model.eval()
    with torch.no_grad():
        right = (model(images).argmax(dim=1) == labels).sum().item()
    right, digits = hvd.allreduce(torch.tensor([float(right), float(len(labels))]), op=hvd.Sum).tolist()
    return right / digits, int(digits)


def save(state: dict, path: Path) -> None:
    """At once or not at all: a learner may be stopped at any moment, also while it writes."""
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process")
    parser.add_argument("--learning-rate", type=float, default=0.04, help="of one process alone")
    parser.add_argument("--warmup-epochs", type=float, default=2)
    parser.add_argument("--commit-every", type=int, default=5, help="steps: so many are lost with a learner at most")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    hvd.init()
    torch.manual_seed(args.seed + hvd.rank())  # dropout differs between processes; the weights get equal below
    gpu = torch.cuda.is_available() and hvd.nccl_built()  # without NCCL, Horovod averages what is on the CPU
    device = torch.device("cuda", hvd.local_rank()) if gpu else torch.device("cpu")

    digits = TensorDataset(*read_digits(DATA, "train"))
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate, momentum=0.9)
    # Before it gets any state: this makes a new optimizer, which takes over the settings only.
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    epochs = 0
    if CHECKPOINT.exists():  # Weft has brought it to every learner
        found = torch.load(CHECKPOINT, weights_only=True, map_location=device)
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        epochs = found["epochs"]
    sampler = hvd.elastic.ElasticSampler(digits, seed=args.seed)
    sampler.set_epoch(epochs)
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=epochs)
    hvd.elastic.run(train)(state, digits, args, device)

    accuracy, held_out = test(model, device)
    say(f"test accuracy {accuracy:.4f} on {held_out} held-out digits")
    if hvd.rank() == 0:
        torch.save(model.state_dict(), RESULTS / "model.pt")
        say("saved model.pt")
    hvd.shutdown()


if __name__ == "__main__":
    main()
