# PyTorch's tensor-parallel toy, what plans/toy.lua is compared with: run by tests/bench/toy.sh under
# torchrun, on the CPU over gloo. Prints the microseconds of a step, as a generated program does.
import os
import sys
import time

import torch
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(10, 32)
        self.relu = nn.ReLU()
        self.out_proj = nn.Linear(32, 5)

    def forward(self, x):
        return self.out_proj(self.relu(self.in_proj(x)))


def train(model, optimizer, input, target, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(input) - target).var()
        loss.backward()
        optimizer.step()
    return loss.item()


def main(warm_up, steps):
    torch.set_num_threads(1)
    torch.manual_seed(45)
    mesh = init_device_mesh("cpu", (1, int(os.environ["WORLD_SIZE"])), mesh_dim_names=("dp", "tp"))
    model = parallelize_module(
        ToyModel().train(), mesh["tp"], {"in_proj": ColwiseParallel(), "out_proj": RowwiseParallel()}
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, foreach=True)
    input, target = torch.randn(20, 10), torch.randn(20, 5)

    first = train(model, optimizer, input, target, 1)
    train(model, optimizer, input, target, warm_up)
    begin = time.perf_counter()
    last = train(model, optimizer, input, target, steps)
    microseconds = (time.perf_counter() - begin) / steps * 1e6
    if mesh.get_rank() == 0:
        print(f"steps: {steps}  us_per_step: {microseconds:.2f}  loss: {first:.4f} -> {last:.4f}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
