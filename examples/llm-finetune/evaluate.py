"""Load a trained model, measure it on texts, and let it write: python evaluate.py TRAINED DATA_DIR [--base MODEL]

TRAINED is a folder with model/ or adapter/ somewhere inside (what `weft download --trainedmodel` brings). An adapter
needs the model that it was trained on.
"""

import argparse
import math
import sys
from pathlib import Path

import torch
from model import find, load, read_blocks
from transformers import AutoTokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trained", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--base", type=Path, help="the model to put the adapter on; default: what is in model/")
    parser.add_argument("--length", type=int, default=1024, help="tokens of a block, as in the training")
    parser.add_argument("--prompt", help="the beginning of the text to write; default: the held-out text's")
    args = parser.parse_args()

    if args.base:
        from peft import PeftModel

        adapters = sorted(args.trained.rglob("adapter_config.json"))
        if not adapters:
            sys.exit(f"no adapter_config.json in {args.trained}")
        folder = find(args.base)
        model = PeftModel.from_pretrained(load(folder), adapters[0].parent)
    else:
        folder = find(args.trained)
        model = load(folder)
    model.eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    _, held_out = read_blocks(args.data, tokenizer, args.length)
    prompt = tokenizer(args.prompt, return_tensors="pt")["input_ids"] if args.prompt else held_out[:1, :32]
    with torch.no_grad():
        loss = sum(model(input_ids=block, labels=block).loss.item() for block in held_out.split(1)) / len(held_out)
        written = model.generate(
            input_ids=prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=64,
            do_sample=False,
            pad_token_id=tokenizer.eos_token_id,
        )
    print(f"perplexity: {math.exp(loss):.2f} on {len(held_out)} held-out blocks")
    print(f"text: {tokenizer.decode(written[0], skip_special_tokens=True)}")


if __name__ == "__main__":
    main()
