#!/usr/bin/env python3
"""Writes what PyTorch makes of tests/plans/data_sets/plan.lua beside itself. Needs PyTorch (2.13 made it, on a CPU).

  python3 tests/golden/data_sets/make.py

  model.safetensors          the weights that training begins with
  normed.safetensors         those of a model with a batch norm
  data.safetensors           22 samples; input_0.npy, input_1.npy, labels.npy and target.npy have the same
  validation.safetensors     10 more
  losses.tsv                 for each way of training, a line: its name, and the losses of its steps
  validation.tsv             for each way, the mean loss of the validation data after every fourth step

Batches are those of torch.utils.data.DataLoader; a shuffled order is that of order.py.
"""

import json, os, struct, sys, numpy, torch
from torch.utils.data import DataLoader, TensorDataset

os.chdir(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, ".")
from order import order

WIDTH, HIDDEN, CLASSES, SAMPLES, MORE, STEPS, EVERY = 6, 8, 5, 22, 10, 18, 4
torch.manual_seed(7)
torch.set_num_threads(1)


class Model(torch.nn.Module):
    def __init__(self, norm=False):
        super().__init__()
        self.up, self.down = torch.nn.Linear(WIDTH, HIDDEN), torch.nn.Linear(HIDDEN, CLASSES)
        self.drop = torch.nn.Dropout(0)
        self.norm = torch.nn.BatchNorm1d(HIDDEN) if norm else torch.nn.Identity()

    def forward(self, x):
        return self.down(self.norm(self.drop(torch.nn.functional.gelu(self.up(x)))))


def save(path, tensors):
    """safetensors, without the library."""
    types = {torch.float32: "F32", torch.int64: "I64"}
    header, data = {}, b""
    for name, x in tensors.items():
        bytes = x.numpy().tobytes()
        header[name] = {"dtype": types[x.dtype], "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(bytes)]}
        data += bytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def make_data(samples):
    labels = torch.randint(CLASSES, (samples,))
    labels[[2, 5, 8]] = -100
    return {"input": torch.randn(samples, WIDTH), "labels": labels, "target": torch.randn(samples, CLASSES)}


def loss_of(kind, model, x, labels, target):
    y = model(x)
    return torch.nn.functional.cross_entropy(y, labels) if kind == "ce" else torch.nn.functional.mse_loss(y, target)


def validate(kind, model, data):
    """The mean over all labels that count, or all samples."""
    model.eval()
    with torch.no_grad():
        loss = loss_of(kind, model, data["input"], data["labels"], data["target"]).item()
    model.train()
    return loss


def batches(data, batch, seed, drop_last):
    dataset = TensorDataset(data["input"], data["labels"], data["target"])
    epoch = 0
    while True:
        places = list(range(SAMPLES)) if seed is None else order(SAMPLES, epoch, seed)
        yield from DataLoader(dataset, batch_size=batch, sampler=places, drop_last=drop_last)
        epoch += 1


def train(data, more, start, kind, batch, seed, drop_last, accumulate, mean="labels"):
    """mean: the loss of a step of several batches is that over all of their labels, or the mean of the batches' means."""
    model = Model("norm.weight" in start)
    model.load_state_dict(start)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses, validations, source = [], [], batches(data, batch, seed, drop_last)
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        total = 0
        taken = [next(source) for _ in range(accumulate)]
        counts = [(labels >= 0).sum().item() if mean == "labels" else 1 for _, labels, _ in taken]
        for one, count in zip(taken, counts):
            loss = loss_of(kind, model, *one) * count / sum(counts)
            loss.backward()
            total += loss.item()
        optimizer.step()
        losses.append(total)
        if step % EVERY == 0:
            validations.append(validate(kind, model, more))
    return losses, validations


model = Model()
save("model.safetensors", dict(model.state_dict()))
start = {name: x.clone() for name, x in model.state_dict().items()}
data, more = make_data(SAMPLES), make_data(MORE)
save("data.safetensors", data)
save("validation.safetensors", more)
wide = data["input"].numpy().astype(numpy.float64)
numpy.save("input_0.npy", wide[:9])
numpy.save("input_1.npy", wide[9:])
numpy.save("labels.npy", data["labels"].numpy())
numpy.save("target.npy", data["target"].numpy())
normed = Model(True).state_dict()
del normed["norm.num_batches_tracked"]
for name in "weight", "bias", "running_mean":
    normed["norm." + name] = torch.randn(HIDDEN)
normed["norm.running_var"] = 0.3 + torch.rand(HIDDEN)
save("normed.safetensors", normed)
normed["norm.num_batches_tracked"] = torch.tensor(0)

ways = {
    "smaller": ("ce", 4, None, False, 1),
    "dropped": ("ce", 4, None, True, 1),
    "shuffled": ("ce", 4, 5, False, 1),
    "shuffled_dropped": ("ce", 4, 5, True, 1),
    "accumulated": ("ce", 4, 5, False, 2),
    "accumulated_means": ("ce", 4, 5, False, 2, "batches"),
    "square": ("mse", 4, 5, False, 1),
    "large": ("ce", 30, None, False, 1),
    "normed": ("ce", 4, 5, True, 1),
}
with open("losses.tsv", "w") as losses, open("validation.tsv", "w") as validations:
    for name, way in ways.items():
        reported, seen = train(data, more, normed if name == "normed" else start, *way)
        losses.write("\t".join([name] + ["%.9g" % x for x in reported]) + "\n")
        validations.write("\t".join([name] + ["%.9g" % x for x in seen]) + "\n")
