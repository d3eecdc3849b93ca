#!/usr/bin/env python3
"""Writes what tests/lora.sh compares with. Needs PyTorch and PEFT (2.13 and 0.21 made it).

  model.safetensors            the weights of tests/lora/plan.lua, under the names that it gives them for others
  data.safetensors             one batch; some labels are ignored
  adapter/                     PEFT's adapters before the first step
  trained.safetensors          the same after 20 steps
  merged.safetensors           the weights with these merged, by merge_and_unload
  outputs.safetensors          what the model with these gives for the batch
  losses.tsv                   for each way of tests/lora.sh: bytes of its trained parameters, then 20 losses"""
import copy
import os

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
D, H = 12, 22


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up_proj, self.down_proj = torch.nn.Linear(D, H), torch.nn.Linear(H, D)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = torch.nn.LayerNorm(D), Mlp()

    def forward(self, x):
        return x + self.mlp.down_proj(F.gelu(self.mlp.up_proj(self.norm(x))))


class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(30, D)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(3))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model, self.lm_head = Inner(), torch.nn.Linear(D, 7, bias=False)

    def forward(self, ids):
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x)
        return self.lm_head(x)


def write(name, tensors):
    save_file({k: v.detach().clone().contiguous() for k, v in tensors.items()}, os.path.join(HERE, name))


def train(way, model, ids, targets, smooth=0.0, z=0.0):
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer, losses = torch.optim.AdamW(trained, lr=1e-2), []
    for _ in range(20):
        logits = model(ids).flatten(0, 1)
        loss = F.cross_entropy(logits, targets.flatten(), label_smoothing=smooth)
        if z:
            counts = targets.flatten() != -100
            loss = loss + z * (torch.logsumexp(logits, 1)[counts] ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 0.5)
        optimizer.step()
        losses.append(loss.item())
    return "\t".join([way, str(sum(4 * p.numel() for p in trained))] + ["%.9g" % x for x in losses])


torch.manual_seed(1)
base = Model()
ids, targets = torch.randint(0, 30, (12, 5)), torch.randint(0, 7, (12, 5))
targets[2, 3] = targets[7, 0] = targets[7, 1] = -100
write("model.safetensors", base.state_dict())
write("data.safetensors", {"input": ids.int(), "target": targets.int()})

lines = []
lora = get_peft_model(copy.deepcopy(base), LoraConfig(
    r=3, lora_alpha=6, target_modules=["up_proj", "down_proj", "lm_head"]))
lora.save_pretrained(os.path.join(HERE, "adapter"))
os.remove(os.path.join(HERE, "adapter", "README.md"))
lines.append(train("lora", lora, ids, targets))
lora.save_pretrained(os.path.join(HERE, "after"))
write("trained.safetensors", load_file(os.path.join(HERE, "after", "adapter_model.safetensors")))
for name in os.listdir(os.path.join(HERE, "after")):
    os.remove(os.path.join(HERE, "after", name))
os.rmdir(os.path.join(HERE, "after"))
write("outputs.safetensors", {"output": lora(ids)})
write("merged.safetensors", lora.merge_and_unload().state_dict())

bias = copy.deepcopy(base)
for name, parameter in bias.named_parameters():
    parameter.requires_grad_(name.endswith(".bias") or name.startswith("lm_head"))
lines.append(train("bias", bias, ids, targets))
lines.append(train("smooth", copy.deepcopy(base), ids, targets, smooth=0.1))
lines.append(train("z", copy.deepcopy(base), ids, targets, smooth=0.1, z=1e-2))
with open(os.path.join(HERE, "losses.tsv"), "w") as file:
    file.write("\n".join(lines) + "\n")
