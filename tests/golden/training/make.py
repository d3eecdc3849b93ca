#!/usr/bin/env python3
"""Writes what PyTorch makes of tests/plans/training/plan.lua beside itself. Needs PyTorch (2.13 made it, on a CPU).

  python3 tests/golden/training/make.py

  model.safetensors   the weights that training begins with
  optimizers.tsv      the same of twenty steps for each optimizer of tests/scripts/programs/optimizers.sh, clipped after the norm
                      is taken; the last column is the sum of the squares of what is compared at the end: all
                      weights, or with `ema` their moving average
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


# ------------------------------------------------------------------------------------------ optimizers

class Lion(optim.Optimizer):
    """As in the paper, Chen and others 2023, algorithm 2."""

    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                beta1, beta2 = group["betas"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(torch.sign(beta1 * m + (1 - beta1) * p.grad), alpha=-group["lr"])
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


class Own(optim.Optimizer):
    """The plan's own."""

    def __init__(self, params, lr=0.02):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                average = self.state[p].setdefault("average", torch.zeros_like(p))
                average.lerp_(p.grad, 0.1)
                p.sub_(group["lr"] * torch.tanh(average))


class LAMB(optim.Optimizer):
    """As in the paper, You and others 2020, algorithm 2."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, t=0))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            group["t"] += 1
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                v = self.state[p].setdefault("exp_avg_sq", torch.zeros_like(p))
                m.lerp_(p.grad, 1 - beta1)
                v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                to = m / (1 - beta1 ** group["t"]) / ((v / (1 - beta2 ** group["t"])).sqrt() + group["eps"])
                to += group["weight_decay"] * p
                length, step = p.norm(), to.norm()
                p.sub_(group["lr"] * (length / step if length > 0 and step > 0 else 1) * to)


class Whole(optim.Optimizer):
    """The plan's own, which looks at rows."""

    def __init__(self, params, lr=0.02):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                average = self.state[p].setdefault("average", torch.zeros_like(p))
                average.lerp_(p.grad, 0.1)
                length = p.grad.norm(dim=-1, keepdim=True)
                length = torch.maximum(self.state[p].get("length", torch.zeros_like(length)), length)
                self.state[p]["length"] = length
                p.sub_(group["lr"] * average / (length + 1e-3))


def muon(model):
    """Muon, and Adam for what is no matrix of a layer. Its products in float32: in bfloat16 the order of their sums
    shows."""
    def in_float32(*arguments):
        bfloat16, torch.Tensor.bfloat16 = torch.Tensor.bfloat16, lambda x: x.clone()
        try:
            return orthogonal(*arguments)
        finally:
            torch.Tensor.bfloat16 = bfloat16
    torch.optim._muon._zeropower_via_newtonschulz = in_float32
    matrices = {name: p for name, p in model.named_parameters() if name.endswith((".w1.weight", ".w2.weight"))}
    first = [p for name, p in matrices.items() if ".w1." in name]
    second = [p for name, p in matrices.items() if ".w2." in name]
    others = [p for name, p in model.named_parameters() if name not in matrices]
    return [(optim.Muon([{"params": first},
                         {"params": second, "adjust_lr_fn": "match_rms_adamw", "nesterov": False, "ns_steps": 4}],
                        lr=0.02), warmup_linear),
            (optim.AdamW(others, lr=0.01), warmup_linear)]


orthogonal = torch.optim._muon._zeropower_via_newtonschulz
STEPS = 20


def warmup_linear(t):
    return t / 4 if t <= 4 else 1 - 0.9 * (t - 4) / (STEPS - 4)


def wsd(t):
    return t / 3 if t <= 3 else 1 if t <= STEPS - 5 else (STEPS - t) / 5


def inverse_sqrt(t):
    return t / 5 if t <= 5 else math.sqrt(5 / t)


def halving(t):
    return 0.5 ** ((t - 1) // 5)


def steps_down(t):
    return 1 if t < 6 else 0.5 if t <= 12 else max(0.1, 1 - t / 20)


def same(t):
    return 1


def in_groups(model):
    groups = {"norm": [], "slow": [], "sgd": [], "rest": []}
    for name, p in model.named_parameters():
        kind = ("norm" if name.endswith(".bias") or name.endswith("norm.weight")
                else "slow" if name.startswith(("embedding.", "output.")) else "sgd" if name.startswith("layers.1.")
                else "rest")
        groups[kind].append(p)
    return [
        (optim.AdamW([{"params": groups["rest"]}, {"params": groups["norm"], "weight_decay": 0},
                      {"params": groups["slow"], "lr": 0.002}], lr=0.02, weight_decay=0.1), inverse_sqrt),
        (optim.SGD(groups["sgd"], lr=0.1, momentum=0.9), halving)]


def alone(make, rate=same):
    return lambda model: [(make(model.parameters()), rate)]


kinds = {
    "AdamW": (alone(lambda p: optim.AdamW(p, lr=0.02, amsgrad=True, maximize=True)), {}),
    "Adam": (alone(lambda p: optim.Adam(p, lr=0.02, weight_decay=0.01)), {}),
    "Adam_linear": (alone(lambda p: optim.Adam(p, lr=0.02), warmup_linear), {"clip": 0.3}),
    "SGD": (alone(lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.01)), {}),
    "SGD_value": (alone(lambda p: optim.SGD(p, lr=0.5, momentum=0.5), halving), {"value": 0.01}),
    "Lion": (alone(lambda p: Lion(p, lr=0.002, weight_decay=0.1), steps_down), {}),
    "RMSprop": (alone(lambda p: optim.RMSprop(p, momentum=0.5, centered=True, eps=1e-4)), {}),
    "Adagrad": (alone(lambda p: optim.Adagrad(p, lr=0.05, lr_decay=0.1), wsd), {}),
    "groups": (in_groups, {"clip": 0.3}),
    "own": (alone(Own), {"ema": 0.9}),
    "LAMB": (alone(lambda p: LAMB(p, lr=0.01)), {"clip": 0.3}),
    "Adafactor": (alone(lambda p: optim.Adafactor(p, lr=0.05, weight_decay=0.1), steps_down), {"ema": 0.9}),
    "Muon": (muon, {}),
    "whole": (alone(Whole), {"value": 0.05}),
}


def optimize(make, options):
    model = Model()
    model.load_state_dict(state)
    optimizers = [(o, optim.lr_scheduler.LambdaLR(o, lambda steps, rate=rate: rate(steps + 1)))
                  for o, rate in make(model)]
    average = None
    if "ema" in options:
        average = torch.optim.swa_utils.AveragedModel(
            model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(options["ema"]))
    for t in range(1, STEPS + 1):
        model.zero_grad()
        x, y = batch(t - 1, 4)
        loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        if "clip" in options:
            torch.nn.utils.clip_grad_norm_(model.parameters(), options["clip"])
        if "value" in options:
            torch.nn.utils.clip_grad_value_(model.parameters(), options["value"])
        rate = optimizers[0][0].param_groups[0]["lr"]
        for o, schedule in optimizers:
            o.step()
            schedule.step()
        if average:
            average.update_parameters(model)
        kept = average.module if average else model
        squares = sum(p.double().square().sum() for p in kept.parameters()).item()
        yield t, loss.item(), rate, squares


with open("optimizers.tsv", "w") as table:
    table.write("# optimizer, step, loss, lr, squares\n")
    for kind, how in kinds.items():
        for line in optimize(*how):
            table.write("%s\t%d\t%.9g\t%.9g\t%.12g\n" % (kind, *line))
