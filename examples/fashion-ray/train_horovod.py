"""Clothes with Horovod on Ray: a RayExecutor, each of whose workers trains on its share of the pictures.

The same training as train.py, with Horovod's RayExecutor and allreduce in the place of Ray Train's TorchTrainer.
"""

import argparse
import os
from pathlib import Path

import horovod.torch as hvd
import ray
import torch
from horovod.ray import RayExecutor
from keeper import last_checkpoint, start_keeper, store, workers
from model import Net, read_images
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def total(*numbers: float) -> list[float]:
    """Each number summed over all workers."""
    return hvd.allreduce(torch.tensor(numbers), op=hvd.Sum).tolist()


def train_epoch(model, optimizer, loader, device) -> tuple[float, float]:
    """The mean loss and the accuracy of all workers."""
    model.train()
    loss_sum = right = pictures = 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        output = model(images)
        loss = functional.cross_entropy(output, labels)
        loss.backward()
        optimizer.step()  # waits for the gradients' averages over all workers
        loss_sum += loss.item() * len(labels)
        right += (output.argmax(dim=1) == labels).sum().item()
        pictures += len(labels)
    loss_sum, right, pictures = total(loss_sum, right, pictures)
    return loss_sum / pictures, right / pictures


def test(model, device) -> tuple[float, int]:
    """Accuracy on the held-out pictures, of which each worker takes its share, and how many they are."""
    share = slice(hvd.rank(), None, hvd.size())
    images, labels = (part[share].to(device) for part in read_images(Path(os.environ["DATA_DIR"]), "t10k"))
    model.eval()
    with torch.no_grad():
        right = (model(images).argmax(dim=1) == labels).sum().item()
    right, pictures = total(right, len(labels))
    return right / pictures, int(pictures)


def train(config: dict) -> dict:
    """Runs in each worker; what the first one returns is the result."""
    hvd.init()
    device = torch.device("cuda", hvd.local_rank()) if config["use_gpu"] else torch.device("cpu")
    torch.manual_seed(config["seed"])
    print(f"worker {hvd.rank()} of {hvd.size()} on learner {os.environ['LEARNER_ID']}", flush=True)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["learning_rate"], momentum=0.9)
    # Before it gets any state: this makes a new optimizer, which takes over the settings only.
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    done = 0
    if config["checkpoint"] is not None:
        model.load_state_dict(config["checkpoint"]["model"])
        optimizer.load_state_dict(config["checkpoint"]["optimizer"])
        done = config["checkpoint"]["epochs"]
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    pictures = TensorDataset(*read_images(Path(os.environ["DATA_DIR"]), "train"))
    sampler = DistributedSampler(pictures, hvd.size(), hvd.rank(), seed=config["seed"])
    loader = DataLoader(pictures, config["batch_size"], sampler=sampler)
    for epoch in range(done, config["epochs"]):
        sampler.set_epoch(epoch)
        # For dropout: the numbers belong to the epoch, so a resume has the same. They differ between workers.
        torch.manual_seed(config["seed"] + epoch * hvd.size() + hvd.rank())
        loss, accuracy = train_epoch(model, optimizer, loader, device)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}/{config['epochs']}  loss {loss:.4f}  accuracy {accuracy:.4f}", flush=True)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epochs": epoch + 1}
            ray.get(config["keeper"].save.remote(state, {"loss": loss, "accuracy": accuracy}))
    accuracy, held_out = test(model, device)
    weights = {name: tensor.cpu().numpy() for name, tensor in model.state_dict().items()}
    hvd.shutdown()
    return {"accuracy": accuracy, "held_out": held_out, "model": weights}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32, help="of each worker")
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    ray.init()
    number, use_gpu = workers()
    config = {**vars(args), "use_gpu": use_gpu, "checkpoint": last_checkpoint(), "keeper": start_keeper()}
    # Horovod's own limit for the workers' start is 30 seconds, which a busy machine may exceed.
    executor = RayExecutor(
        RayExecutor.create_settings(timeout_s=300), num_workers=number, cpus_per_worker=1, use_gpu=use_gpu
    )
    executor.start()
    results = executor.run(train, args=[config])
    executor.shutdown()
    store(results[0])


if __name__ == "__main__":
    main()
