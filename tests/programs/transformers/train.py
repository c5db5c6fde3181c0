"""Hugging Face's Trainer on a tiny GPT-2 with random weights, as on one machine: nothing here speaks of several."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Counting(torch.utils.data.Dataset):
    """Each sequence counts on from another number."""

    def __len__(self):
        return 64

    def __getitem__(self, at):
        ids = (torch.arange(16) + at) % 32
        return {"input_ids": ids, "labels": ids}


config = GPT2Config(vocab_size=32, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
arguments = TrainingArguments(
    output_dir="out", max_steps=6, per_device_train_batch_size=4, logging_steps=2, save_strategy="no", report_to="none"
)
trainer = Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Counting())
trainer.train()
total = sum(parameter.double().sum().item() for parameter in trainer.model.parameters())
print(f"world {arguments.world_size} rank {arguments.process_index} parameters {total:.10f}", flush=True)
