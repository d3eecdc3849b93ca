#!/usr/bin/env python3
"""Writes what tests/scripts/programs/float8.sh compares with, beside itself. Needs PyTorch (2.15 made it), torchao (0.18) and
safetensors.

  python3 tests/golden/float8/make.py

  weights.safetensors, data.safetensors   what tests/plans/float8/plan.lua begins with
  RECIPE.losses       the losses of its steps, with float8 by torchao's recipe of that name, emulated: rounded to
                      float8, products in float32
  llama_RECIPE.losses the same of the golden Llama (../llama) in bfloat16, with the products of its layers in float8
"""
import dataclasses
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torchao.float8 import Float8LinearConfig, convert_to_float8_training

HERE = os.path.dirname(os.path.abspath(__file__))
RECIPES = "tensorwise", "rowwise"
WIDTH, HIDDEN, OUTPUTS = 32, 64, 6
torch.manual_seed(11)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.w1, self.w2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        return x + self.w2(F.silu(self.w1(self.norm(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block()])
        self.output = nn.Linear(WIDTH, OUTPUTS)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.output(x)


def in_float8(model, recipe):
    config = dataclasses.replace(Float8LinearConfig.from_recipe_name(recipe), emulate=True)
    return convert_to_float8_training(model, config=config, module_filter_fn=lambda m, name: "output" not in name)


def write(name, losses):
    with open(os.path.join(HERE, name + ".losses"), "w") as f:
        f.writelines("%.9g\n" % x for x in losses)
    print(name, losses[0], losses[-1])


weights = Model().state_dict()
data = {"input": torch.randn(8, 8, WIDTH), "target": torch.randn(8, 8, OUTPUTS)}
save_file(weights, os.path.join(HERE, "weights.safetensors"))
save_file(data, os.path.join(HERE, "data.safetensors"))
for recipe in RECIPES:
    model = Model()
    model.load_state_dict(weights)
    model = in_float8(model, recipe)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9), []
    for _ in range(12):
        loss = (model(data["input"]) - data["target"]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    write(recipe, losses)

# The golden Llama. Weights are kept in float32, and each step computes with them in bfloat16, as FSDP's mixed precision does.
DIM, LAYERS, HEADS, KV_HEADS, HIDDEN, WORDS, LENGTH, BATCH = 128, 2, 8, 4, 352, 512, 64, 4


def rotated(x):
    half = x.shape[-1] // 2
    angle = torch.outer(torch.arange(x.shape[2]).float(), 10000.0 ** (-torch.arange(half).float() / half))
    cos, sin = angle.cos(), angle.sin()
    a, b = x.float()[..., :half], x.float()[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        size = DIM // HEADS
        self.wq, self.wo = nn.Linear(DIM, DIM, False), nn.Linear(DIM, DIM, False)
        self.wk, self.wv = nn.Linear(DIM, KV_HEADS * size, False), nn.Linear(DIM, KV_HEADS * size, False)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (-1, DIM // HEADS)).transpose(1, 2) for y in (self.wq(x), self.wk(x), self.wv(x)))
        y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
        return self.wo(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2, self.w3 = (nn.Linear(*s, False) for s in ((DIM, HIDDEN), (HIDDEN, DIM), (DIM, HIDDEN)))

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(DIM, eps=1e-5), nn.RMSNorm(DIM, eps=1e-5)
        self.attention, self.feed_forward = Attention(), FeedForward()

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(WORDS, DIM)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.norm, self.output = nn.RMSNorm(DIM, eps=1e-5), nn.Linear(DIM, WORDS, False)

    def forward(self, tokens):
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


text = torch.tensor(list(open(os.path.join(HERE, "../llama/text.txt"), "rb").read()))
for recipe in (None,) + RECIPES:
    model = Llama()
    model.load_state_dict(load_file(os.path.join(HERE, "../llama/llama.safetensors")))
    if recipe:
        model = in_float8(model, recipe)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    losses, at = [], 0
    for _ in range(20):
        n = BATCH * LENGTH
        tokens, target = text[at:at + n].view(BATCH, LENGTH), text[at + 1:at + n + 1].view(BATCH, LENGTH)
        at += n
        narrow = {name: p.bfloat16() for name, p in model.named_parameters()}
        logits = torch.func.functional_call(model, narrow, (tokens,)).float()
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    if recipe:
        write("llama_" + recipe, losses)
    else:
        print("bfloat16", losses[:4], losses[-1])
