#!/usr/bin/env python3
"""The losses that PyTorch has of plans/dpo.lua and plans/reward.lua in eight steps of four pairs: losses.tsv.

  make.py WEIGHTS SAMPLES ADAPTERS SCORES > losses.tsv

WEIGHTS is a folder that plans/causal_lm.lua with config.json exports before the first step (--steps 0 --export), SAMPLES the
safetensors file that run.sh makes of pairs.jsonl, ADAPTERS that of an export of adapters, SCORES the export of the reward model.
"""
import sys, torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification
from peft import PeftModel

weights, samples, adapters, scores = sys.argv[1:]
data = load_file(samples)
inputs, targets = data["input"].long(), data["target"].long()
config = LlamaConfig.from_json_file(__file__.rsplit("/", 1)[0] + "/config.json")
BETA, functional = 0.1, torch.nn.functional

def model():
    m = LlamaForCausalLM(config)
    m.load_state_dict(load_file(weights + "/model.safetensors"))
    return m

def log_probs(m, x, y):
    logits, labels = m(x.flatten(0, 1)).logits, y.flatten(0, 1)
    each = functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    return -each.sum(-1).view(-1, 2), (labels != -100).sum(-1).view(-1, 2).float()

def trained(name, parameters, loss):
    optimizer, losses = torch.optim.AdamW(parameters, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1), []
    for step in range(8):
        at = torch.arange(4 * step, 4 * step + 4) % len(inputs)
        value = loss(inputs[at], targets[at])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append("%.8g" % value.item())
    print(name, *losses, sep="\t")

def dpo(name, policy, reference, kind="sigmoid", smoothing=0.0, sft=0.0):
    def loss(x, y):
        p, n = log_probs(policy, x, y)
        with torch.no_grad():
            r, _ = reference(x, y)
        better = p[:, 0].sum() / n[:, 0].sum()
        if kind == "ipo":
            p, r = p / n, r / n
        h = (p - r)[:, 0] - (p - r)[:, 1]
        if kind == "sigmoid":
            each = -functional.logsigmoid(BETA * h) * (1 - smoothing) - functional.logsigmoid(-BETA * h) * smoothing
        else:
            each = torch.relu(1 - BETA * h) if kind == "hinge" else (h - 1 / (2 * BETA)) ** 2
        return each.mean() - sft * better
    trained(name, [p for p in policy.parameters() if p.requires_grad], loss)

start = model()
for kind in "sigmoid", "hinge", "ipo":
    dpo(kind, model(), lambda x, y: log_probs(start, x, y), kind)
dpo("robust", model(), lambda x, y: log_probs(start, x, y), "sigmoid", 0.1, 0.5)

policy = PeftModel.from_pretrained(model(), adapters, is_trainable=True)
def without(x, y):
    with policy.disable_adapter():
        return log_probs(policy, x, y)
dpo("adapters", policy, without)

config.num_labels, config.pad_token_id = 1, None
judge = LlamaForSequenceClassification(config)
judge.load_state_dict(load_file(scores + "/model.safetensors"))
def pairs(x, y):
    labels = y.flatten(0, 1)
    last = torch.where(labels != -100, torch.arange(labels.shape[1]), -1).amax(-1) + 1
    hidden = judge.score(judge.model(x.flatten(0, 1)).last_hidden_state)[:, :, 0]
    score = hidden.gather(1, last[:, None])[:, 0].view(-1, 2)
    return -functional.logsigmoid(score[:, 0] - score[:, 1]).mean()
trained("reward", judge.parameters(), pairs)
