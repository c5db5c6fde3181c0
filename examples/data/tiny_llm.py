"""Write a tiny language model with random weights, and sentences to train it on, with nothing to download.

    python examples/data/tiny_llm.py FOLDER [TEXTS]

FOLDER/model is a Llama with 102,784 weights, in the form in which `save_pretrained` of transformers writes a model. Its
tokens are bytes. FOLDER/sentences/sentences.jsonl has 2,000 texts about animals, or as many as TEXTS says, from a small
grammar. They are always the same.

Needs numpy, but neither PyTorch nor transformers.
"""

from __future__ import annotations

import json
import random
import struct
import sys
from pathlib import Path

import numpy as np

END = "<|endoftext|>"
WIDTH, INNER, LAYERS, HEADS, KEY_HEADS = 64, 160, 2, 4, 2


def alphabet() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary: printable bytes stand for themselves."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def tokenizer() -> dict:
    """A byte-level tokenizer like GPT-2's, without merges."""
    vocabulary = {character: byte for byte, character in enumerate(alphabet())} | {END: 256}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "added_tokens": [{"id": 256, "content": END, **special}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }


CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 257,
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_HEADS,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "bos_token_id": 256,
    "eos_token_id": 256,
    "dtype": "float32",
}


def weights() -> dict[str, np.ndarray]:
    """Random weights by name, as in a real Llama. The norms are 1."""
    key_width = WIDTH // HEADS * KEY_HEADS
    shapes = {
        "self_attn.q_proj": (WIDTH, WIDTH),
        "self_attn.k_proj": (key_width, WIDTH),
        "self_attn.v_proj": (key_width, WIDTH),
        "self_attn.o_proj": (WIDTH, WIDTH),
        "mlp.gate_proj": (INNER, WIDTH),
        "mlp.up_proj": (INNER, WIDTH),
        "mlp.down_proj": (WIDTH, INNER),
    }
    chance = np.random.default_rng(1)
    # LoRA does not train the embedding. Large differences between its rows let the other layers choose among tokens.
    found = {"model.embed_tokens.weight": chance.normal(0, 0.2, (257, WIDTH))}
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            found[f"model.layers.{layer}.{name}.weight"] = chance.normal(0, shape[1] ** -0.5, shape)
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"model.layers.{layer}.{name}.weight"] = np.ones(WIDTH)
    found["model.norm.weight"] = np.ones(WIDTH)
    return {name: values.astype("<f4") for name, values in found.items()}


def safetensors(tensors: dict[str, np.ndarray]) -> bytes:
    """The file format: the header's size, the header as JSON, the values."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": (at, at + values.nbytes)}
        at += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(values.tobytes() for values in tensors.values())


def sentences(count: int) -> list[str]:
    """Texts of three sentences about one animal, in which the colour decides the place."""
    chance = random.Random(1)
    places = {"red": "forest", "grey": "garden", "white": "mountains", "brown": "field"}
    found = []
    for _ in range(count):
        colour, animal = chance.choice(list(places)), chance.choice(["fox", "cat", "owl", "hare"])
        verb, food = chance.choice(["looks for", "finds", "eats"]), chance.choice(["berries", "mice", "apples"])
        found.append(
            f"The {colour} {animal} lives in the {places[colour]}. It {verb} {food}. Then the {animal} sleeps in the "
            f"{places[colour]}."
        )
    return found


def write(folder: Path, texts: int) -> int:
    """Write the model and the sentences; how many weights the model has."""
    model, data, tensors = folder / "model", folder / "sentences", weights()
    for path in (model, data):
        path.mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text(json.dumps(CONFIG, indent=2))
    (model / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (model / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "model_max_length": 512})
    )
    (model / "model.safetensors").write_bytes(safetensors(tensors))
    lines = (json.dumps({"text": text}) for text in sentences(texts))
    (data / "sentences.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return sum(values.size for values in tensors.values())


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python tiny_llm.py FOLDER [TEXTS]")
    count = int(sys.argv[2]) if len(sys.argv) == 3 else 2000
    size = write(Path(sys.argv[1]), count)
    print(f"wrote a model with {size:,} weights and {count:,} texts to {sys.argv[1]}")
