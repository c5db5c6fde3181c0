"""Handwritten digits with the parameters that a sweep has chosen: on the command line, and in a JSON file.

Weft gives DATA_DIR, RESULT_DIR and, in a trial of a sweep, WEFT_PARAMETERS_FILE.
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


def chosen() -> dict:
    """The sweep's parameters for this trial; empty without a sweep."""
    file = os.environ.get("WEFT_PARAMETERS_FILE")
    return json.loads(Path(file).read_text()) if file else {}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=0.04)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--momentum", type=float, default=chosen().get("momentum", 0.9))
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.manual_seed(args.seed)
    print(f"learning rate {args.learning_rate:g}, batch size {args.batch_size}, momentum {args.momentum:g}", flush=True)
    images, labels = read_digits(DATA, "train")
    held_images, held_labels = read_digits(DATA, "t10k")
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate, momentum=args.momentum)
    RESULTS.mkdir(parents=True, exist_ok=True)
    best = 0.0
    for epoch in range(1, args.epochs + 1):
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
            best = accuracy
            torch.save(model.state_dict(), RESULTS / "model.pt")


if __name__ == "__main__":
    main()
