#!/usr/bin/env python3
"""Writes how far PyTorch's batch norm is from float64, for tests/scripts/programs/far_means.sh, beside itself. Needs PyTorch (2.15 made it,
on a CPU).

  python3 tests/golden/far_means/make.py

  images.safetensors, rows.safetensors   `input`, without its mean, and `weight`
  distances.tsv                          lines: which, the mean, then the largest distances of `value` (what comes out),
                                         `gradient`, running_mean and running_var
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


def normed(x, weight, kind):
    x = x.detach().to(kind, copy=True).requires_grad_()
    norm = (torch.nn.BatchNorm2d if x.dim() == 4 else torch.nn.BatchNorm1d)(4).to(kind)
    y = norm(x)
    (y * weight.to(kind)).sum().backward()
    return y.detach(), x.grad, norm.running_mean, norm.running_var


with open("distances.tsv", "w") as f:
    for name, shape in ("images", (4, 4, 8, 8)), ("rows", (256, 4)):
        input, weight = torch.randn(shape), torch.randn(shape)
        save(name + ".safetensors", {"input": input, "weight": weight})
        for mean in 10, 100, 1000:
            x = input + mean
            apart = [(a.double() - b).abs().max().item() for a, b in
                     zip(normed(x, weight, torch.float32), normed(x, weight, torch.float64))]
            f.write("\t".join([name, str(mean)] + ["%.3g" % a for a in apart]) + "\n")
