#!/usr/bin/env python3
"""Writes what tests/scripts/programs/attention.sh compares with. Needs PyTorch (2.13 made it).

  WAY.safetensors     the weights of tests/plans/attention/plan.lua with -D how=WAY
  data.safetensors    one batch
  losses.tsv          for each way 20 losses of AdamW, with attention written out: scores in a matrix, a softcap, what is
                      added, a mask, a column for the sinks, a softmax"""
import os
import torch
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
WIDTH, HEADS, LENGTH, BATCH = 16, 4, 10, 4


class Layer(torch.nn.Module):
    def __init__(self, how):
        super().__init__()
        self.has = lambda option: how in (option, "all")
        linear = lambda: torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.q, self.k, self.v, self.o = linear(), linear(), linear(), linear()
        if self.has("sinks"): self.sinks = torch.nn.Parameter(torch.randn(HEADS))
        if self.has("bias"): self.bias = torch.nn.Parameter(torch.randn(1, HEADS, LENGTH, LENGTH))

    def forward(self, x):
        heads = lambda y: y.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        scores = q @ k.mT / (WIDTH // HEADS) ** 0.5
        if self.has("softcap"): scores = 0.5 * torch.tanh(scores / 0.5)
        if self.has("bias"): scores = scores + self.bias
        away = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
        hidden = torch.zeros(LENGTH, LENGTH, dtype=torch.bool)
        if not self.has("bias"): hidden |= away < 0
        if self.has("window"): hidden |= away.abs() >= 3
        scores = scores.masked_fill(hidden, -torch.inf)
        if self.has("sinks"):
            scores = torch.cat((scores, self.sinks[:, None, None].expand(BATCH, HEADS, LENGTH, 1)), -1)
        weights = scores.softmax(-1)[..., :LENGTH]
        return x + self.o((weights @ v).transpose(1, 2).flatten(2))


class Model(torch.nn.Module):
    def __init__(self, how):
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(how), Layer(how)])

    def forward(self, x):
        for layer in self.layers: x = layer(x)
        return x


torch.manual_seed(3)
data = {"input": torch.randn(BATCH, LENGTH, WIDTH), "target": torch.randn(BATCH, LENGTH, WIDTH)}
save_file(data, os.path.join(HERE, "data.safetensors"))
with open(os.path.join(HERE, "losses.tsv"), "w") as file:
    for how in "window", "softcap", "sinks", "bias", "all":
        torch.manual_seed(5)
        model = Model(how)
        with torch.no_grad():  # scores of some size
            for layer in model.layers: layer.q.weight *= 4
        save_file(model.state_dict(), os.path.join(HERE, how + ".safetensors"))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses = []
        for _ in range(20):
            loss = torch.nn.functional.mse_loss(model(data["input"]), data["target"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append("%.9g" % loss.item())
        print(how, *losses, sep="\t", file=file)
