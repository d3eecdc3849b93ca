#!/usr/bin/env python3
"""Writes how far PyTorch's norms are from float64, for tests/scripts/programs/far_means.sh, beside itself. Needs PyTorch (2.15 made it,
on a CPU).

  python3 tests/golden/far_means/make.py

  images.safetensors, rows.safetensors   `input`, without its mean, and `weight`
  distances.tsv                          lines: which, the mean, the elements that have a mean of their own (0: those of a
                                         channel, in all samples), then the largest distances of `value` (what comes out),
                                         `gradient`, and of a batch norm running_mean and running_var
"""

import json, os, struct, torch

os.chdir(os.path.dirname(os.path.abspath(__file__)))
torch.manual_seed(3)
torch.set_num_threads(1)


def save(path, tensors):
    """safetensors, without the library."""
    header, data = {}, b""
    for name, x in tensors.items():
        bytes = x.numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(bytes)]}
        data += bytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def norm_of(x, together):
    if together == 0:
        return (torch.nn.BatchNorm2d if x.dim() == 4 else torch.nn.BatchNorm1d)(4)
    return {256: torch.nn.LayerNorm((4, 8, 8)), 128: torch.nn.GroupNorm(2, 4), 64: torch.nn.InstanceNorm2d(4),
            4: torch.nn.LayerNorm(4)}[together]


def normed(x, weight, kind, together):
    x = x.detach().to(kind, copy=True).requires_grad_()
    norm = norm_of(x, together).to(kind)
    y = norm(x)
    (y * weight.to(kind)).sum().backward()
    return (y.detach(), x.grad) + ((norm.running_mean, norm.running_var) if together == 0 else ())


with open("distances.tsv", "w") as f:
    for name, shape, norms in ("images", (4, 4, 8, 8), (0, 256, 128, 64)), ("rows", (256, 4), (0, 4)):
        input, weight = torch.randn(shape), torch.randn(shape)
        save(name + ".safetensors", {"input": input, "weight": weight})
        for together in norms:
            for mean in 10, 100, 1000:
                x = input + mean
                apart = [(a.double() - b).abs().max().item() for a, b in
                         zip(normed(x, weight, torch.float32, together), normed(x, weight, torch.float64, together))]
                f.write("\t".join([name, str(mean), str(together)] + ["%.3g" % a for a in apart]) + "\n")
