#!/usr/bin/env python3
"""The losses that TRL's KTOTrainer has of rated.jsonl in eight steps of four answers: kto.tsv, by TRL 1.16.

  kto.py WEIGHTS TOKENIZER > kto.tsv

WEIGHTS is a folder that plans/causal_lm.lua with config.json exports before the first step (--steps 0 --export), with config.json;
TOKENIZER one with tokenizer.json and tokenizer_config.json.
"""
import json, os, sys, torch
from datasets import Dataset
from transformers import AutoTokenizer, LlamaForCausalLM
from trl import KTOConfig, KTOTrainer

weights, tokenizer = sys.argv[1:]
lines = [json.loads(line) for line in open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "rated.jsonl"))]
rows = [dict(line, label=bool(line["label"])) for line in lines]
out, sys.stdout = sys.stdout, sys.stderr

for name, kind, good, bad in ("kto", "kto", 1, 1), ("weighted", "kto", 0.7, 1.5), ("apo_zero", "apo_zero_unpaired", 1, 1):
    policy, reference = (LlamaForCausalLM.from_pretrained(weights, dtype=torch.float32) for _ in range(2))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    how = KTOConfig(output_dir="/tmp/unused", loss_type=kind, desirable_weight=good, undesirable_weight=bad, beta=0.1,
        per_device_train_batch_size=4, dataloader_drop_last=True, max_length=96, max_steps=8, max_grad_norm=0.0, logging_steps=1,
        save_strategy="no", report_to=[], bf16=False, use_cpu=True, gradient_checkpointing=False)
    trainer = KTOTrainer(model=policy, ref_model=reference, args=how, train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(tokenizer),
        optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)))
    trainer.train()
    print(name, *("%.8g" % entry["loss"] for entry in trainer.state.log_history if "loss" in entry), sep="\t", file=out)
