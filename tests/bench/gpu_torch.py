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

import torch
import torch.nn as nn
import torch.nn.functional as F

DIM, LAYERS, HEADS, KV_HEADS, HIDDEN, VOCAB, SEQ = 2048, 16, 32, 8, 8192, 32768, 2048
LR, BETAS, WEIGHT_DECAY, CLIP, THETA, EPS = 3e-4, (0.9, 0.95), 0.1, 1.0, 500000.0, 1e-5
HEAD = DIM // HEADS


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq = nn.Linear(DIM, HEADS * HEAD, bias=False)
        self.wk = nn.Linear(DIM, KV_HEADS * HEAD, bias=False)
        self.wv = nn.Linear(DIM, KV_HEADS * HEAD, bias=False)
        self.wo = nn.Linear(HEADS * HEAD, DIM, bias=False)

    def forward(self, x, cos, sin):
        q, k, v = (w(x).unflatten(-1, (-1, HEAD)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.wo(y.transpose(1, 2).flatten(2))


# Rotary embedding in Hugging Face's order: a pair is half a head apart.
def turned(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(DIM, HIDDEN, bias=False)
        self.w2 = nn.Linear(HIDDEN, DIM, bias=False)
        self.w3 = nn.Linear(DIM, HIDDEN, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(DIM, EPS), nn.RMSNorm(DIM, EPS)
        self.attention, self.feed_forward = Attention(), FeedForward()

    def forward(self, x, cos, sin):
        h = x + self.attention(self.attention_norm(x), cos, sin)
        return h + self.feed_forward(self.ffn_norm(h))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.output = nn.RMSNorm(DIM, EPS), nn.Linear(DIM, VOCAB, bias=False)
        angle = torch.outer(torch.arange(SEQ), THETA ** (-torch.arange(0, HEAD, 2) / HEAD))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, tokens, target):
        x = self.tok_embeddings(tokens).bfloat16()
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = self.output(self.norm(x))
        return F.cross_entropy(logits.float().flatten(0, 1), target.flatten())


class Mixed:
    def __init__(self, model):
        self.model = model.bfloat16()
        self.work = list(model.parameters())
        self.master = [nn.Parameter(p.detach().float()) for p in self.work]
        self.optimizer = torch.optim.AdamW(self.master, lr=LR, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True)

    def step(self):
        for p, w in zip(self.master, self.work):
            p.grad = w.grad.float()
            w.grad = None
        torch.nn.utils.clip_grad_norm_(self.master, CLIP)
        self.optimizer.step()
        torch._foreach_copy_(self.work, self.master)


def train(how, batch, steps, lines, trace=None):
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda")
    with device:
        model = Llama().train()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.02)
    cos, sin = model.cos.float(), model.sin.float()
    mixed = Mixed(model)
    model.cos, model.sin = cos, sin
    forward = model
    if how != "eager":
        forward = torch.compile(model, mode="max-autotune-no-cudagraphs" if how == "compiled-max" else None)
    tokens = torch.randint(VOCAB, (1 << 20,), device=device)
    n = batch * SEQ

    def step(i):
        begin = i * n % (len(tokens) - n - 1)
        input, target = (tokens[begin + s : begin + s + n].view(batch, SEQ) for s in (0, 1))
        loss = forward(input, target)
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
