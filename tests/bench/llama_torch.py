# PyTorch's Llama, what plans/llama3.lua is compared with: run by tests/bench/llama.sh; gpu_torch.py takes the
# model from here.
#   llama_torch.py write WEIGHTS TOKENS                    random weights (safetensors) and tokens (uint16)
#   llama_torch.py HOW float32|bfloat16 WEIGHTS TOKENS N LINES
#                                                          N steps; each step's loss and seconds as a line of
#                                                          JSON in the file LINES. HOW: eager or compiled, in
#                                                          one process; over gloo, under torchrun: tp (tensor
#                                                          parallel), ddp, fsdp (fully_shard of each layer), pp
#                                                          (stages of a pipeline, 1F1B, a micro-batch a sequence)
#   llama_torch.py products N LINES                        the products of a step alone, in bfloat16, N times: the
#                                                          seconds of each as a line of JSON
# BATCH in the environment: sequences in a batch (4).
#   llama_torch.py peak FILE COMMAND...                    runs it; the MiB of its largest process
import json
import os
import resource
import struct
import subprocess
import sys
import time
from contextlib import nullcontext

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

DIM, LAYERS, HEADS, KV_HEADS, HIDDEN, VOCAB, SEQ = 512, 8, 8, 4, 1408, 8192, 256
BATCH = int(os.environ.get("BATCH", "4"))
LR, BETAS, WEIGHT_DECAY, CLIP, THETA, EPS = 1e-3, (0.9, 0.95), 0.1, 1.0, 10000.0, 1e-5
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
    a, b = x.chunk(2, -1)
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
        self.cos, self.sin = angle.cos(), angle.sin()

    def forward(self, tokens):
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.output(self.norm(x))


# torchtitan's plan: between the blocks the sequence is cut, within them heads and hidden units, and
# the logits stay cut over the vocabulary into the loss.
def parallelized(model, mesh):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    model = parallelize_module(
        model,
        mesh,
        {
            "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
        },
    )
    for layer in model.layers:
        parallelize_module(
            layer,
            mesh,
            {
                "attention_norm": SequenceParallel(),
                "attention": PrepareModuleInput(
                    input_layouts=(Shard(1), None, None), desired_input_layouts=(Replicate(), None, None)
                ),
                "attention.wq": ColwiseParallel(),
                "attention.wk": ColwiseParallel(),
                "attention.wv": ColwiseParallel(),
                "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
                "ffn_norm": SequenceParallel(),
                "feed_forward": PrepareModuleInput(
                    input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
                ),
                "feed_forward.w1": ColwiseParallel(),
                "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
                "feed_forward.w3": ColwiseParallel(),
            },
        )
    return model


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [offset, offset + t.nbytes]}
        offset += t.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            file.write(t.tobytes())


def read_safetensors(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        tensors = {}
        for name, t in header.items():
            file.seek(8 + size + t["data_offsets"][0])
            bytes = file.read(t["data_offsets"][1] - t["data_offsets"][0])
            tensors[name] = torch.from_numpy(np.frombuffer(bytes, np.float32).reshape(t["shape"]).copy())
    return tensors


def write(weights, tokens):
    torch.manual_seed(0)
    model = Llama()
    nn.init.normal_(model.tok_embeddings.weight, std=0.02)
    write_safetensors(weights, {k: v.detach().numpy() for k, v in model.named_parameters()})
    torch.randint(VOCAB, (20000,)).numpy().astype(np.uint16).tofile(tokens)


# Batch i begins at token (i * BATCH * SEQ) mod (length - BATCH * SEQ - 1); targets are one further.
def batch(tokens, i):
    n = BATCH * SEQ
    begin = i * n % (len(tokens) - n - 1)
    return (tokens[begin + shift : begin + shift + n].view(BATCH, SEQ) for shift in (0, 1))


# The batch's sequences are cut over the ranks.
def data_parallel(how, model, mesh, narrow):
    if how == "ddp":
        return nn.parallel.DistributedDataParallel(model, process_group=mesh.get_group())
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(*((torch.bfloat16, torch.float32) if narrow else ()))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


# fully_shard has a policy of its own for narrow types; else it is autocast.
def precision(how, narrow):
    return torch.autocast("cpu", torch.bfloat16) if narrow and how != "fsdp" else nullcontext()


def train(how, dtype, weights, tokens, steps, lines):
    model = Llama().train()
    model.load_state_dict(read_safetensors(weights))
    tokens = torch.from_numpy(np.fromfile(tokens, np.uint16).astype(np.int64))
    narrow, rank, ranks, loss_context = dtype == "bfloat16", 0, 1, nullcontext
    if how not in ("eager", "compiled"):
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),), mesh_dim_names=(how,))
        rank = mesh.get_rank()
        if how == "tp":
            from torch.distributed.tensor.parallel import loss_parallel

            model, loss_context = parallelized(model, mesh), loss_parallel
        else:
            model, ranks = data_parallel(how, model, mesh, narrow), mesh.size()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LR, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True
    )
    forward = torch.compile(model) if how == "compiled" else model
    out = open(lines if rank == 0 else os.devnull, "w")
    for i in range(steps):
        begin = time.perf_counter()
        input, target = (t.chunk(ranks)[rank if ranks > 1 else 0] for t in batch(tokens, i))
        optimizer.zero_grad()
        with loss_context():
            with precision(how, narrow):
                logits = forward(input)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), target.flatten())
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        if ranks > 1:
            loss = loss.detach() / ranks
            torch.distributed.all_reduce(loss)
        loss = loss.full_tensor().item() if how == "tp" else loss.item()
        print(f'{{"loss":{loss:.9g},"seconds":{time.perf_counter() - begin:.6f}}}', file=out, flush=True)
    if how not in ("eager", "compiled"):
        torch.distributed.destroy_process_group()


# The layers that a stage has; the first one has the embedding, too, and the last one the output.
class Stage(nn.Module):
    def __init__(self, whole, rank, ranks):
        super().__init__()
        first, end = rank * LAYERS // ranks, (rank + 1) * LAYERS // ranks
        self.tok_embeddings = whole.tok_embeddings if rank == 0 else None
        self.layers = whole.layers[first:end]
        self.norm, self.output = (whole.norm, whole.output) if end == LAYERS else (None, None)
        self.cos, self.sin = whole.cos, whole.sin

    def forward(self, x):
        if self.tok_embeddings is not None:
            x = self.tok_embeddings(x)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return x if self.norm is None else self.output(self.norm(x))


def loss_of(logits, target):
    return F.cross_entropy(logits.flatten(0, 1).float(), target.flatten())


# clip_grad_norm_ of parameters that several ranks have.
def clip_over_stages(model):
    square = sum(p.grad.square().sum() for p in model.parameters())
    torch.distributed.all_reduce(square)
    factor = (CLIP / (square.sqrt() + 1e-6)).clamp(max=1)
    for p in model.parameters():
        p.grad.mul_(factor)


def train_stages(weights, tokens, steps, lines):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    whole = Llama().train()
    whole.load_state_dict(read_safetensors(weights))
    model = Stage(whole, rank, ranks)
    schedule = Schedule1F1B(
        PipelineStage(model, rank, ranks, torch.device("cpu")), n_microbatches=BATCH, loss_fn=loss_of
    )
    tokens = torch.from_numpy(np.fromfile(tokens, np.uint16).astype(np.int64))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LR, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True
    )
    out = open(lines if rank == 0 else os.devnull, "w")
    for i in range(steps):
        begin = time.perf_counter()
        input, target = batch(tokens, i)
        losses = []
        optimizer.zero_grad()
        schedule.step(*([input] if rank == 0 else []), target=target, losses=losses)
        clip_over_stages(model)
        optimizer.step()
        loss = torch.stack(losses).mean().detach() if losses else torch.zeros(())
        torch.distributed.all_reduce(loss)
        print(f'{{"loss":{loss.item():.9g},"seconds":{time.perf_counter() - begin:.6f}}}', file=out, flush=True)
    torch.distributed.destroy_process_group()


# Sizes of a step's products with weights, forward: rows by columns of the weights, and how many of them.
def weights_of_products():
    inner = KV_HEADS * HEAD
    return [(DIM, DIM + 2 * inner, LAYERS), (DIM, DIM, LAYERS), (DIM, 2 * HIDDEN, LAYERS), (HIDDEN, DIM, LAYERS), (DIM, VOCAB, 1)]


# Each with its two of the backward: the gradients of the input and of the weights.
def products(steps, lines):
    rows, narrow, all = BATCH * SEQ, torch.bfloat16, []
    for k, n, times in weights_of_products():
        for _ in range(times):
            all.append([torch.randn(*size).to(narrow) for size in ((rows, k), (n, k), (rows, n))])
    with open(lines, "w") as out, torch.no_grad():
        for _ in range(steps):
            begin = time.perf_counter()
            for x, w, d in all:
                x @ w.T, d @ w, d.T @ x
            print(f'{{"seconds":{time.perf_counter() - begin:.6f}}}', file=out, flush=True)


def peak(file, command):
    status = subprocess.run(command).returncode
    with open(file, "w") as out:
        print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024, file=out)
    sys.exit(status)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(*sys.argv[2:])
    elif sys.argv[1] == "products":
        products(int(sys.argv[2]), sys.argv[3])
    elif sys.argv[1] == "peak":
        peak(sys.argv[2], sys.argv[3:])
    elif sys.argv[1] == "pp":
        train_stages(*sys.argv[3:5], int(sys.argv[5]), sys.argv[6])
    else:
        train(*sys.argv[1:5], int(sys.argv[5]), sys.argv[6])
