#!/usr/bin/env python3
"""Writes what tests/scripts/programs/lora.sh compares with. Needs PyTorch, PEFT and transformers (2.13, 0.21 and 5.23 made it).

  model.safetensors            the weights of tests/plans/lora/plan.lua, under the names that it gives them for others
  data.safetensors             one batch; some labels are ignored
  adapter/                     PEFT's adapters before the first step
  trained.safetensors          the same after 20 steps
  like1 to like3.safetensors   the same after 20 steps from adapters and weights a rounding error away; `make.py like`: these alone
  merged.safetensors           the weights with these merged, by merge_and_unload
  outputs.safetensors          what the model with these gives for the batch
  losses.tsv                   for each way of tests/scripts/programs/lora.sh: bytes of its trained parameters, then 20 losses
  projections/                 model, adapter, trained, like and merged of tests/plans/lora/projections.lua, with the same data"""
import copy
import os
import sys
import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch.nn import functional as F
from transformers.pytorch_utils import Conv1D

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


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.c_attn, self.c_proj = torch.nn.LayerNorm(D), Conv1D(3 * D, D), Conv1D(D, D)
        self.gate_up, self.down = torch.nn.Linear(D, 32), torch.nn.Linear(16, D)

    def forward(self, x):
        q, k, v = (y.view(12, 5, 3, 4).transpose(1, 2) for y in self.c_attn(self.norm(x)).split(D, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(12, 5, D))
        gate, up = self.gate_up(x).chunk(2, 2)
        return x + self.down(F.silu(gate) * up)


class Projections(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.head = torch.nn.Embedding(30, D), torch.nn.Linear(D, 7, bias=False)
        self.h = torch.nn.ModuleList(Block() for _ in range(2))

    def forward(self, ids):
        x = self.wte(ids)
        for block in self.h:
            x = block(x)
        return self.head(x)


class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = Projections()

    def forward(self, ids):
        return self.transformer(ids)


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


def write_adapters(name, lora):
    with tempfile.TemporaryDirectory() as folder:
        lora.save_pretrained(folder)
        write(name, load_file(os.path.join(folder, "adapter_model.safetensors")))


def adapt(to, way, model, modules, ids, targets):
    """Writes PEFT's adapters of these modules before and after training; gives the model and its line."""
    os.makedirs(os.path.join(HERE, to), exist_ok=True)
    lora = get_peft_model(model, LoraConfig(r=3, lora_alpha=6, target_modules=modules))
    lora.save_pretrained(os.path.join(HERE, to, "adapter"))
    os.remove(os.path.join(HERE, to, "adapter", "README.md"))
    line = train(way, lora, ids, targets)
    write_adapters(os.path.join(to, "trained.safetensors"), lora)
    return lora, line


def write_like(to, make, ids, targets):
    """Trains what is in the files of this folder from a rounding error away."""
    for i in range(1, 4):
        generator = torch.Generator().manual_seed(i)
        model = make()
        model.load_state_dict(load_file(os.path.join(HERE, to, "model.safetensors")))
        lora = PeftModel.from_pretrained(model, os.path.join(HERE, to, "adapter"), is_trainable=True)
        with torch.no_grad():
            for p in lora.parameters():
                p.mul_(1 + 6e-8 * torch.randint(-1, 2, p.shape, generator=generator))
        train("", lora, ids, targets)
        write_adapters(os.path.join(to, f"like{i}.safetensors"), lora)


def main():
    lines = []
    torch.manual_seed(1)
    base = Model()
    ids, targets = torch.randint(0, 30, (12, 5)), torch.randint(0, 7, (12, 5))
    targets[2, 3] = targets[7, 0] = targets[7, 1] = -100
    write("model.safetensors", base.state_dict())
    write("data.safetensors", {"input": ids.int(), "target": targets.int()})

    lora, line = adapt("", "lora", copy.deepcopy(base), ["up_proj", "down_proj", "lm_head"], ids, targets)
    lines.append(line)
    write("outputs.safetensors", {"output": lora(ids)})
    write("merged.safetensors", lora.merge_and_unload().state_dict())

    bias = copy.deepcopy(base)
    for name, parameter in bias.named_parameters():
        parameter.requires_grad_(name.endswith(".bias") or name.startswith("lm_head"))
    lines.append(train("bias", bias, ids, targets))
    lines.append(train("smooth", copy.deepcopy(base), ids, targets, smooth=0.1))
    lines.append(train("z", copy.deepcopy(base), ids, targets, smooth=0.1, z=1e-2))

    projections = Outer()
    os.makedirs(os.path.join(HERE, "projections"), exist_ok=True)
    write("projections/model.safetensors", projections.state_dict())
    lora, line = adapt("projections", "projections", projections, ["wte", "c_attn", "c_proj", "gate_up"], ids, targets)
    lines.append(line)
    write("projections/merged.safetensors", lora.merge_and_unload().state_dict())
    with open(os.path.join(HERE, "losses.tsv"), "w") as file:
        file.write("\n".join(lines) + "\n")


if sys.argv[1:] != ["like"]:
    main()
batch = load_file(os.path.join(HERE, "data.safetensors"))
for to, make in (("", Model), ("projections", Outer)):
    write_like(to, make, batch["input"].long(), batch["target"].long())
