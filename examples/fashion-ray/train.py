"""Clothes with Ray Train: a TorchTrainer, each of whose workers trains on its share of the pictures.

The script is an ordinary one for Ray: it connects to the cluster that it finds, which here is one for this job alone.
A worker runs in some learner and sees that learner's DATA_DIR; each learner has downloaded the data.
"""

import argparse
import os
from pathlib import Path

import ray
import ray.train.torch
import torch
import torch.distributed as dist
from keeper import last_checkpoint, start_keeper, store, workers
from model import Net, read_images
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


def total(*numbers: float) -> list[float]:
    """Each number summed over all workers."""
    values = torch.tensor(numbers, dtype=torch.float32, device=ray.train.torch.get_device())
    dist.all_reduce(values)
    return values.tolist()


def train_epoch(model, optimizer, loader) -> tuple[float, float]:
    """The mean loss and the accuracy of all workers."""
    model.train()
    loss_sum = right = pictures = 0
    for images, labels in loader:
        optimizer.zero_grad()
        output = model(images)
        loss = functional.cross_entropy(output, labels)
        loss.backward()  # averages the gradients over all workers while it goes
        optimizer.step()
        loss_sum += loss.item() * len(labels)
        right += (output.argmax(dim=1) == labels).sum().item()
        pictures += len(labels)
    loss_sum, right, pictures = total(loss_sum, right, pictures)
    return loss_sum / pictures, right / pictures


def test(net, context) -> tuple[float, int]:
    """Accuracy on the held-out pictures, of which each worker takes its share, and how many they are."""
    share = slice(context.get_world_rank(), None, context.get_world_size())
    data = read_images(Path(os.environ["DATA_DIR"]), "t10k")
    images, labels = (part[share].to(ray.train.torch.get_device()) for part in data)
    net.eval()
    with torch.no_grad():
        right = (net(images).argmax(dim=1) == labels).sum().item()
    right, pictures = total(right, len(labels))
    return right / pictures, int(pictures)


def train(config: dict) -> dict:
    """Runs in each worker; what the first one returns is the result."""
    context = ray.train.get_context()
    first = context.get_world_rank() == 0
    torch.manual_seed(config["seed"])
    print(f"worker {context.get_world_rank()} of {context.get_world_size()} on learner {os.environ['LEARNER_ID']}")
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=config["learning_rate"], momentum=0.9)
    done = 0
    if config["checkpoint"] is not None:
        net.load_state_dict(config["checkpoint"]["model"])
        optimizer.load_state_dict(config["checkpoint"]["optimizer"])
        done = config["checkpoint"]["epochs"]
    model = ray.train.torch.prepare_model(net)  # DistributedDataParallel, which copies the first one's weights to all
    pictures = TensorDataset(*read_images(Path(os.environ["DATA_DIR"]), "train"))
    loader = ray.train.torch.prepare_data_loader(DataLoader(pictures, config["batch_size"], shuffle=True))
    for epoch in range(done, config["epochs"]):
        # For dropout: the numbers belong to the epoch, so a resume has the same. They differ between workers.
        torch.manual_seed(config["seed"] + epoch * context.get_world_size() + context.get_world_rank())
        if context.get_world_size() > 1:
            loader.sampler.set_epoch(epoch)
        loss, accuracy = train_epoch(model, optimizer, loader)
        if first:
            print(f"epoch {epoch + 1}/{config['epochs']}  loss {loss:.4f}  accuracy {accuracy:.4f}", flush=True)
            state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epochs": epoch + 1}
            ray.get(config["keeper"].save.remote(state, {"loss": loss, "accuracy": accuracy}))
    accuracy, held_out = test(net, context)
    weights = {name: tensor.cpu().numpy() for name, tensor in net.state_dict().items()}  # Ray Train returns no tensors
    return {"accuracy": accuracy, "held_out": held_out, "model": weights} if first else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32, help="of each worker")
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    ray.init()
    number, use_gpu = workers()
    trainer = TorchTrainer(
        train,
        train_loop_config={**vars(args), "checkpoint": last_checkpoint(), "keeper": start_keeper()},
        scaling_config=ScalingConfig(num_workers=number, use_gpu=use_gpu),
        # Ray's notes on the run. Checkpoints reported to Ray itself would need a place that all learners share.
        run_config=RunConfig(storage_path=os.path.join(os.environ["JOB_STATE_DIR"], "ray-train")),
    )
    store(trainer.fit().return_value)


if __name__ == "__main__":
    main()
