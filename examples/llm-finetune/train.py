"""Fine-tune a causal language model of transformers on texts: all its weights, or LoRA's adapter alone.

Weft gives PRETRAINED_DIR (the model), DATA_DIR (the texts), RESULT_DIR and CHECKPOINT_DIR, and starts this program
under torchrun. FSDP2 shards weights, gradients and the optimizer's state over all processes, of however many learners.
"""

import argparse
import math
import os
import shutil
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoints
from model import find, load, name, read_blocks  # sets HF_HOME: comes before transformers
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoTokenizer

try:
    from weft_trainer import log_metrics  # there in every learner
except ImportError:  # on a machine without Weft

    def log_metrics(**_) -> None: ...


PRETRAINED = Path(os.environ["PRETRAINED_DIR"])
DATA = Path(os.environ["DATA_DIR"])
RESULTS = Path(os.environ["RESULT_DIR"])
CHECKPOINTS = Path(os.environ["CHECKPOINT_DIR"])
KEPT = 2
"""Where a learner has not stored its part of the newest, all go on from the one before."""
TRAINED = StateDictOptions(ignore_frozen_params=True, strict=False)
"""A checkpoint has what is trained: with LoRA, not the model that the adapter stands on."""


def say(line: str) -> None:
    """Only the first process speaks for all."""
    if dist.get_rank() == 0:
        print(line, flush=True)


def mean(value: torch.Tensor) -> float:
    """The mean of all processes' values."""
    dist.all_reduce(value)
    return value.item() / dist.get_world_size()


def build(args, dtype="auto"):
    """The model to train, whole. Every process gets the same one."""
    torch.manual_seed(args.seed)  # LoRA's adapter begins with random weights
    model = load(find(PRETRAINED), dtype)
    if args.method == "lora":
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(
            model,
            LoraConfig(
                task_type="CAUSAL_LM",
                r=args.lora_rank,
                lora_alpha=2 * args.lora_rank,
                lora_dropout=args.lora_dropout,
                target_modules="all-linear",
            ),
        )
    return model


def shard(model, device: torch.device):
    """Each process keeps its part of every layer, and has a layer whole only while it computes with it."""
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    bfloat16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    policy = bfloat16 if device.type == "cuda" else MixedPrecisionPolicy()
    # The classes of the model's layers, as transformers names them: LlamaDecoderLayer, GPT2Block, …
    layers = [module for module in model.modules() if type(module).__name__ in model._no_split_modules]
    for part in [*layers, model]:  # goes to the GPU layer by layer: the whole model need not fit into one
        for parameter in part.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()  # small steps would be lost in bfloat16
        fully_shard(part, mesh=mesh, mp_policy=policy)
    return model


def learning_rate(args, done: float) -> float:
    """Rises over the first twentieth of the steps, then falls to 0 in a straight line. ``done``: 0 to 1."""
    peak = args.learning_rate or (2e-4 if args.method == "lora" else 2e-5)
    return peak * min(done / 0.05, (1 - done) / 0.95)


def train_step(model, optimizer, blocks, args) -> float:
    """One step with this process's blocks, as many at a time as there is room for. Returns all processes' loss."""
    loss_sum = torch.zeros((), device=blocks.device)
    optimizer.zero_grad()
    for part in blocks.split(args.device_batch_size):
        loss = model(input_ids=part, labels=part, use_cache=False).loss * len(part) / len(blocks)
        loss.backward()  # sums up the gradients of the parts, and averages over all processes
        loss_sum += loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return mean(loss_sum)


def evaluate(model, blocks, args, device) -> float:
    """The loss on the held-out blocks. Every process takes as many: FSDP's processes compute each layer together."""
    world, rank = dist.get_world_size(), dist.get_rank()
    each = math.ceil(len(blocks) / world)
    own = blocks[(torch.arange(each) * world + rank) % len(blocks)].to(device)
    model.eval()
    loss = torch.zeros((), device=device)
    with torch.no_grad():
        for part in own.split(args.device_batch_size):
            loss += model(input_ids=part, labels=part, use_cache=False).loss * len(part) / each
    model.train()
    return mean(loss)


def save(model, optimizer, step: int) -> None:
    """Every process its own shard; `.metadata`, which the first one writes after all, says that it is whole."""
    weights, moments = get_state_dict(model, optimizer, options=TRAINED)
    checkpoints.save({"model": weights, "optimizer": moments}, checkpoint_id=CHECKPOINTS / f"step-{step:06}")
    if int(os.environ["LOCAL_RANK"]) == 0:
        for old in sorted(CHECKPOINTS.glob("step-*"))[:-KEPT]:
            shutil.rmtree(old)


def whole() -> set[str]:
    """Checkpoints with all shards. Each learner stores its folder by itself: of the newest there may be a part."""
    found = set()
    for path in (metadata.parent for metadata in CHECKPOINTS.glob("step-*/.metadata")):
        shards = checkpoints.FileSystemReader(path).read_metadata().storage_data.values()
        if all((path / shard.relative_path).exists() for shard in shards):
            found.add(path.name)
    return found


def resume(model, optimizer) -> int:
    """Go on from the newest checkpoint that all processes have, of however many it is: how many steps are done."""
    theirs = [set()] * dist.get_world_size()
    dist.all_gather_object(theirs, whole())
    newest = max(set.intersection(*theirs), default="")
    if int(os.environ["LOCAL_RANK"]) == 0:
        for path in CHECKPOINTS.glob("step-*"):
            if path.name > newest:  # of what is trained anew now
                shutil.rmtree(path)
    if not newest:
        return 0
    weights, moments = get_state_dict(model, optimizer, options=TRAINED)
    checkpoints.load({"model": weights, "optimizer": moments}, checkpoint_id=CHECKPOINTS / newest)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments, options=TRAINED)
    say(f"resuming from {newest}")
    return int(newest.removeprefix("step-"))


def store(model, tokenizer, args) -> None:
    """The first process writes the trained model as transformers and peft read it."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True)
    weights = get_model_state_dict(model, options=options)
    if dist.get_rank() != 0:
        return
    trained = build(args)  # one that is not sharded, in the precision of the pretrained model
    trained.load_state_dict(weights, strict=False)
    if args.method == "lora":
        origin = name(find(PRETRAINED)) or os.environ.get("PRETRAINED_MODEL")  # not the learner's folder
        trained.peft_config["default"].base_model_name_or_path = origin
        trained.save_pretrained(RESULTS / "adapter", save_embedding_layers=False)
        tokenizer.save_pretrained(RESULTS / "adapter")
        say("saved adapter/")
    if args.method == "full" or args.merge:
        trained = trained if args.method == "full" else trained.merge_and_unload()
        trained.save_pretrained(RESULTS / "model")
        tokenizer.save_pretrained(RESULTS / "model")
        say("saved model/")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", choices=["lora", "full"], default="lora")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--length", type=int, default=1024, help="tokens of a block")
    parser.add_argument("--batch-size", type=int, default=16, help="blocks of a step, over all processes")
    parser.add_argument("--device-batch-size", type=int, default=4, help="blocks that a process computes with at once")
    parser.add_argument("--learning-rate", type=float, help="default: 2e-4 for LoRA, 2e-5 for all weights")
    parser.add_argument("--lora-rank", type=int, default=16)
    parser.add_argument("--lora-dropout", type=float, default=0.05)
    parser.add_argument("--merge", action="store_true", help="with LoRA: also store the model with the adapter in it")
    parser.add_argument("--gradient-checkpointing", action="store_true", help="less memory, a third more time")
    parser.add_argument("--save-every", type=int, default=200, help="steps")
    parser.add_argument("--log-every", type=int, default=10, help="steps")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    for variable, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1")):
        os.environ.setdefault(variable, value)  # without torchrun, one process alone
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    alone = {} if "MASTER_ADDR" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group("nccl" if gpu else "gloo", **alone)
    rank, world = dist.get_rank(), dist.get_world_size()

    tokenizer = AutoTokenizer.from_pretrained(find(PRETRAINED))
    training, held_out = read_blocks(DATA, tokenizer, args.length)
    batch_size = min(args.batch_size, len(training)) // world * world
    if batch_size == 0:
        raise SystemExit(f"{len(training)} blocks, {args.batch_size} a step, are too few for {world} processes")
    steps_per_epoch = len(training) // batch_size
    steps = args.epochs * steps_per_epoch
    say(f"{len(training):,} blocks of {args.length} tokens to train on, {len(held_out):,} held out, {steps:,} steps")

    model = build(args, "auto" if gpu else torch.float32)
    if args.gradient_checkpointing:
        model.activation_checkpointing_enable()
    shard(model, device)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    own = sum(parameter.to_local().numel() for parameter in parameters)
    trained = sum(parameter.numel() for parameter in parameters)
    print(f"rank {rank} of {world} on {device.type} trains {own:,} of {trained:,} weights", flush=True)
    optimizer = torch.optim.AdamW(parameters, lr=0.0, weight_decay=0.0)

    def validate(step: int) -> None:
        loss = evaluate(model, held_out, args, device)
        say(f"step {step}/{steps}  validation loss {loss:.4f}  perplexity {math.exp(loss):.2f}")
        if rank == 0:
            log_metrics(loss=loss, perplexity=math.exp(loss), step=step, group="validation")

    first = resume(model, optimizer)
    if first == 0:
        validate(0)
    model.train()
    losses, started = [], time.monotonic()
    for step in range(first, steps):
        # For dropout: the numbers belong to the step, so a resume has the same. They differ between processes.
        torch.manual_seed(args.seed + step * world + rank)
        epoch, at = divmod(step, steps_per_epoch)
        # The order of an epoch is the same every run and with every number of processes.
        order = torch.randperm(len(training), generator=torch.Generator().manual_seed(args.seed + epoch))
        blocks = training[order[at * batch_size :][:batch_size][rank::world]].to(device)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(args, (step + 1) / (steps + 1))
        losses.append(train_step(model, optimizer, blocks, args))
        done = step + 1
        if done % args.log_every == 0 or done == steps:
            loss = sum(losses) / len(losses)
            speed = len(losses) * batch_size * args.length / (time.monotonic() - started)
            say(f"step {done}/{steps}  loss {loss:.4f}  {speed:,.0f} tokens/s")
            if rank == 0:
                log_metrics(loss=loss, tokens_per_second=speed, step=done, group="train")
            losses, started = [], time.monotonic()
        if done % args.save_every == 0 or done == steps:
            validate(done)
            save(model, optimizer, done)
            started = time.monotonic()

    store(model, tokenizer, args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
