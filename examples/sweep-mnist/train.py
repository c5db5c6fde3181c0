"""Handwritten digits with the parameters that a sweep has chosen: on the command line, and in a JSON file.

Weft gives DATA_DIR, RESULT_DIR, CHECKPOINT_DIR and, in a trial of a sweep, WEFT_PARAMETERS_FILE. When a trial goes on
to its next rung, this program starts again with more epochs, and finds in CHECKPOINT_DIR what it has left there.
"""

import argparse
import json
import os
from pathlib import Path

import torch
from model import Net, read_digits
from torch.nn import functional

try:
    from weft_trainer import log_metrics  # there in every learner
except ImportError:  # on a machine without Weft

    def log_metrics(**_) -> None: ...


DATA = Path(os.environ["DATA_DIR"])
RESULTS = Path(os.environ["RESULT_DIR"])
CHECKPOINT = Path(os.environ["CHECKPOINT_DIR"]) / "state.pt"


def chosen() -> dict:
    """The sweep's parameters for this trial; empty without a sweep."""
    file = os.environ.get("WEFT_PARAMETERS_FILE")
    return json.loads(Path(file).read_text()) if file else {}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=9, help="in all, with those of the checkpoint")
    parser.add_argument("--learning-rate", type=float, default=0.04)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--momentum", type=float, default=chosen().get("momentum", 0.9))
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def save(state: dict) -> None:
    CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, CHECKPOINT.with_suffix(".tmp"))
    CHECKPOINT.with_suffix(".tmp").replace(CHECKPOINT)


def main() -> None:
    args = arguments()
    torch.manual_seed(args.seed)
    print(f"learning rate {args.learning_rate:g}, batch size {args.batch_size}, momentum {args.momentum:g}", flush=True)
    images, labels = read_digits(DATA, "train")
    held_images, held_labels = read_digits(DATA, "t10k")
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate, momentum=args.momentum)
    done, best, best_model = 0, 0.0, model.state_dict()
    if CHECKPOINT.exists():
        state = torch.load(CHECKPOINT, weights_only=True)
        done, best, best_model = state["epochs"], state["best"], state["best_model"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        print(f"continuing after epoch {done}", flush=True)
    for epoch in range(done + 1, args.epochs + 1):
        torch.manual_seed(args.seed + epoch)  # the same order of digits, whether the epoch follows a checkpoint or not
        model.train()
        loss_sum = 0.0
        for batch in torch.randperm(len(images)).split(args.batch_size):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            loss_sum += loss.item() * len(batch)
        model.eval()
        with torch.no_grad():
            accuracy = (model(held_images).argmax(dim=1) == held_labels).float().mean().item()
        print(
            f"epoch {epoch}/{args.epochs}  loss {loss_sum / len(images):.4f}  test accuracy {accuracy:.4f}", flush=True
        )
        log_metrics(loss=loss_sum / len(images), step=epoch, group="train")
        log_metrics(accuracy=accuracy, step=epoch, group="test")
        if accuracy >= best:  # the sweep counts the best epoch, so the model is that of the best epoch
            best, best_model = accuracy, {name: values.clone() for name, values in model.state_dict().items()}
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epochs": epoch}
        save({**state, "best": best, "best_model": best_model})
    RESULTS.mkdir(parents=True, exist_ok=True)
    torch.save(best_model, RESULTS / "model.pt")


if __name__ == "__main__":
    main()
