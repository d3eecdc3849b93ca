#!/usr/bin/env python3
"""Writes what PyTorch makes of tests/training/plan.lua beside itself. Needs PyTorch (2.13 made it, on a CPU).

  python3 tests/golden/training/make.py

  model.safetensors   the weights that training begins with
  training.tsv        for each way of training, the loss, the norm of the gradients before they are clipped,
                      and the learning rate of ten steps over batches of four rows of text.txt

A batch that is taken in two halves, whose gradients are added up, must give the same.
"""

import json, math, os, struct, torch

os.chdir(os.path.dirname(os.path.abspath(__file__)))

WORDS, WIDTH, HIDDEN, LENGTH = 128, 12, 14, 6
torch.manual_seed(7)
torch.set_num_threads(1)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.RMSNorm(WIDTH, eps=1e-5)
        self.w1, self.w2 = torch.nn.Linear(WIDTH, HIDDEN), torch.nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        return x + self.w2(torch.nn.functional.silu(self.w1(self.norm(x))))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(WORDS, WIDTH)
        self.layers = torch.nn.ModuleList([Block() for _ in range(3)])
        self.norm = torch.nn.RMSNorm(WIDTH, eps=1e-5)
        self.output = torch.nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x):
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


state = {name: value.detach().clone() for name, value in Model().state_dict().items()}
head, data = {}, b""
for name, value in state.items():
    part = value.numpy().tobytes()
    head[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(part)]}
    data += part
head = json.dumps(head).encode()
head += b" " * (-len(head) % 8)
open("model.safetensors", "wb").write(struct.pack("<Q", len(head)) + head + data)

text = torch.tensor(list(open("text.txt", "rb").read()))


def batch(i, rows):
    n = rows * LENGTH
    at = i * n % (len(text) - n - 1)
    return text[at:at + n].view(rows, LENGTH), text[at + 1:at + n + 1].view(rows, LENGTH)


def warmup_cosine(warmup, steps, least):
    def rate(t):
        if t <= warmup:
            return t / warmup
        if t >= steps:
            return least
        return least + (1 - least) * (1 + math.cos(math.pi * (t - warmup) / (steps - warmup))) / 2
    return rate


optim = torch.optim
ways = {
    "adamw": (lambda p: optim.AdamW(p, lr=0.02, betas=(0.9, 0.95), weight_decay=0.1), warmup_cosine(3, 8, 0.1), 0.3),
    "sgd": (lambda p: optim.SGD(p, lr=0.5, weight_decay=0.01), lambda t: 1, math.inf),
    "momentum": (lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01), warmup_cosine(4, 10, 1), 0.5),
    "nesterov": (lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
                 warmup_cosine(0, 10, 0), math.inf),
}


def train(make, rate, clip, pieces):
    model = Model()
    model.load_state_dict(state)
    optimizer = make(model.parameters())
    schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda steps: rate(steps + 1))
    for t in range(1, 11):
        optimizer.zero_grad()
        loss = 0
        for i in range(pieces * (t - 1), pieces * t):
            x, y = batch(i, 4 // pieces)
            part = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()) / pieces
            part.backward()
            loss += part.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip).item()
        yield t, loss, norm, optimizer.param_groups[0]["lr"]
        optimizer.step()
        schedule.step()


with open("training.tsv", "w") as table:
    table.write("# way, step, loss, grad_norm, lr\n")
    for way, how in ways.items():
        for whole, halves in zip(train(*how, 1), train(*how, 2)):
            assert all(abs(a - b) <= 1e-5 * abs(a) for a, b in zip(whole, halves)), (way, whole, halves)
            table.write("%s\t%d\t%.9g\t%.9g\t%.9g\n" % (way, *whole))
