# PyTorch's Llama on a GPU, what the CUDA program of plans/llama3.lua is compared with: run by
# tests/bench/gpu.sh.
#   gpu_torch.py HOW BATCH STEPS LINES [TRACE]   HOW: eager, compiled, or compiled-max (max-autotune); trains
#                from random weights on random tokens; a step's loss and seconds as a line of JSON in LINES;
#                with TRACE the time of each kernel of one step, as a table in that file
# A bfloat16 copy of the parameters computes, the float32 master learns: fused AdamW, the norm clipped, as
# the plan has it.
import json
import sys
import time

import llama_torch
import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = dict(DIM=2048, LAYERS=16, HEADS=32, KV_HEADS=8, HIDDEN=8192, VOCAB=32768, SEQ=2048, THETA=500000.0, HEAD=64)
LR, BETAS, WEIGHT_DECAY, CLIP = 3e-4, (0.9, 0.95), 0.1, 1.0
for name, value in SIZES.items():
    setattr(llama_torch, name, value)
VOCAB, SEQ = llama_torch.VOCAB, llama_torch.SEQ


class Mixed:
    def __init__(self, model):
        self.model = model.bfloat16()
        self.work = list(model.parameters())
        self.master = [nn.Parameter(p.detach().float()) for p in self.work]
        self.optimizer = torch.optim.AdamW(self.master, lr=LR, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True)

    @torch.no_grad()
    def step(self):
        for p, w in zip(self.master, self.work):
            p.grad = w.grad.float()
            w.grad = None
        torch.nn.utils.clip_grad_norm_(self.master, CLIP)
        self.optimizer.step()
        torch._foreach_copy_(self.work, self.master)


def train(how, batch, steps, lines, trace=None):
    torch.manual_seed(0)
    device = torch.device("cuda")
    with device:
        model = llama_torch.Llama().train()
    model.cos, model.sin = model.cos.to(device), model.sin.to(device)
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.02)
    mixed = Mixed(model)

    def loss_of(input, target):
        return F.cross_entropy(model(input).float().flatten(0, 1), target.flatten())

    if how != "eager":
        loss_of = torch.compile(loss_of, mode="max-autotune-no-cudagraphs" if how == "compiled-max" else None)
    tokens = torch.randint(VOCAB, (1 << 20,), device=device)
    n = batch * SEQ

    def step(i):
        begin = i * n % (len(tokens) - n - 1)
        loss = loss_of(*(tokens[begin + s : begin + s + n].view(batch, SEQ) for s in (0, 1)))
        loss.backward()
        mixed.step()
        return loss

    with open(lines, "w") as out:
        for i in range(steps):
            torch.cuda.synchronize()
            began = time.perf_counter()
            loss = step(i)
            torch.cuda.synchronize()
            seconds = time.perf_counter() - began
            print(json.dumps({"loss": loss.item(), "seconds": seconds,
                              "memory": torch.cuda.max_memory_allocated()}), file=out, flush=True)
    if trace:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            step(steps)
            torch.cuda.synchronize()
        with open(trace, "w") as out:
            print(profile.key_averages().table(sort_by="cuda_time_total", row_limit=25), file=out)


if __name__ == "__main__":
    train(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
