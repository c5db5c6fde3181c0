"""Train a model of some digits: from nothing, or from what a pretrained model already knows of strokes.

With a pretrained model (the manifest's pretrained_model, which Weft brings to PRETRAINED_DIR) its features are kept as
they are and only a new head is trained; model.json then says what it came of.
"""

import argparse
import hashlib
import os
from pathlib import Path

import torch
from model import Net, load, read_digits, save
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

try:
    from weft_trainer import log_metrics  # there in every learner
except ImportError:  # on a machine without Weft

    def log_metrics(**_) -> None: ...


DATA = Path(os.environ["DATA_DIR"])
RESULTS = Path(os.environ["RESULT_DIR"])


def start(digits: list[int]) -> tuple[Net, dict]:
    """The network to train, and what its model.json will say."""
    net = Net(len(digits))
    card = {"digits": digits, "job": os.environ["TRAINING_ID"], "parent": None}
    if "PRETRAINED_DIR" not in os.environ:
        return net, card
    folder = Path(os.environ["PRETRAINED_DIR"])
    pretrained, parent = load(folder)
    net.features.load_state_dict(pretrained.features.state_dict())
    net.features.requires_grad_(False)
    name = os.environ.get("PRETRAINED_MODEL")  # digits@1, when the registry knows it
    print(f"features of {name or 'a pretrained model'}, which knows the digits {parent['digits']}", flush=True)
    weights = next(folder.rglob("model.pt"))
    card["parent"] = {
        "model": name,
        "job": parent["job"],
        "sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
    }
    return net, card


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--digits", type=int, nargs="+", required=True)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--examples", type=int, help="train on no more than so many; default: all")
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net, card = start(args.digits)
    net.to(device)
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    total = sum(weight.numel() for weight in net.parameters())
    print(f"training {sum(weight.numel() for weight in trained):,} of {total:,} weights")
    optimizer = torch.optim.SGD(trained, lr=args.learning_rate, momentum=0.9)
    images, labels = (part[: args.examples] for part in read_digits(DATA, "train", args.digits))
    loader = DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True)
    for epoch in range(args.epochs):
        loss_sum = 0.0
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            loss = functional.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
            loss_sum += loss.item() * len(labels)
        loss_mean = loss_sum / len(loader.dataset)
        print(f"epoch {epoch + 1}/{args.epochs}  loss {loss_mean:.4f}", flush=True)
        log_metrics(loss=loss_mean, step=epoch + 1, group="train")

    images, labels = (part.to(device) for part in read_digits(DATA, "t10k", args.digits))
    with torch.no_grad():
        accuracy = (net(images).argmax(dim=1) == labels).float().mean().item()
    print(f"test accuracy {accuracy:.4f} on {len(labels)} held-out digits")
    log_metrics(accuracy=accuracy, step=args.epochs, group="test")
    card["accuracy"] = round(accuracy, 4)
    save(net.cpu(), card, RESULTS)


if __name__ == "__main__":
    main()
