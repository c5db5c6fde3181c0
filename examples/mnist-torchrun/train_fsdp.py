"""The same training as train.py with FSDP2 in place of DistributedDataParallel: weights, gradients and the optimizer's
state are sharded over the processes, so that a model need not fit into one device, and so are checkpoints.
"""

import os
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoints
from model import Net, read_digits
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from train import DATA, RESULTS, arguments, log_metrics, say, test, train_epoch

CHECKPOINTS = Path(os.environ["CHECKPOINT_DIR"])
KEPT = 2
"""Where a learner has not stored its part of the newest, all go on from the one before."""


def shard(net: Net, device: torch.device) -> Net:
    """Each process keeps its part of every layer, and has a layer whole only while it computes with it."""
    for value in net.parameters():
        dist.broadcast(value.data, src=0)  # the parts must be of one and the same model
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    fully_shard(net.features, mesh=mesh)
    fully_shard(net.classifier, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def save(model, optimizer, epochs: int) -> None:
    """Every process its own shard; `.metadata`, which the first one writes after all, says that it is whole."""
    weights, moments = get_state_dict(model, optimizer)
    checkpoints.save({"model": weights, "optimizer": moments}, checkpoint_id=CHECKPOINTS / f"epoch-{epochs:04}")
    if int(os.environ["LOCAL_RANK"]) == 0:
        for old in sorted(CHECKPOINTS.glob("epoch-*"))[:-KEPT]:
            shutil.rmtree(old)


def whole() -> set[str]:
    """Checkpoints with all shards. Each learner stores its folder by itself: of the newest there may be a part."""
    found = set()
    for path in (metadata.parent for metadata in CHECKPOINTS.glob("epoch-*/.metadata")):
        shards = checkpoints.FileSystemReader(path).read_metadata().storage_data.values()
        if all((path / shard.relative_path).exists() for shard in shards):
            found.add(path.name)
    return found


def resume(model, optimizer) -> int:
    """Go on from the newest checkpoint that all processes have, of however many it is: how many epochs are done."""
    theirs = [set()] * dist.get_world_size()
    dist.all_gather_object(theirs, whole())
    name = max(set.intersection(*theirs), default="")
    if int(os.environ["LOCAL_RANK"]) == 0:
        for path in CHECKPOINTS.glob("epoch-*"):
            if path.name > name:  # of what is trained anew now
                shutil.rmtree(path)
    if not name:
        return 0
    weights, moments = get_state_dict(model, optimizer)
    checkpoints.load({"model": weights, "optimizer": moments}, checkpoint_id=CHECKPOINTS / name)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    epochs = int(name.removeprefix("epoch-"))
    say(f"resuming after epoch {epochs} from {name}")
    return epochs


def main() -> None:
    args = arguments()
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpu else "gloo")
    torch.manual_seed(args.seed + dist.get_rank())
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} on {device.type}", flush=True)

    digits = TensorDataset(*read_digits(DATA, "train"))
    sampler = DistributedSampler(digits, seed=args.seed)
    loader = DataLoader(digits, args.batch_size, sampler=sampler)

    model = shard(Net().to(device), device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate, momentum=0.9)
    whole = sum(value.numel() for value in model.parameters())
    own = sum(value.to_local().numel() for value in model.parameters())
    print(f"rank {dist.get_rank()} keeps {own:,} of {whole:,} weights", flush=True)
    for epoch in range(resume(model, optimizer), args.epochs):
        sampler.set_epoch(epoch)
        # For dropout: the numbers belong to the epoch, so a resume has the same. They differ by process.
        torch.manual_seed(args.seed + epoch * dist.get_world_size() + dist.get_rank())
        train_epoch(model, optimizer, loader, epoch, args, device)
        save(model, optimizer, epoch + 1)

    accuracy, held_out = test(model, device)
    say(f"test accuracy {accuracy:.4f} on {held_out} held-out digits")
    trained = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        log_metrics(accuracy=accuracy, step=args.epochs, group="test")
        torch.save(trained, RESULTS / "model.pt")
        say("saved model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
