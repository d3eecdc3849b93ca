"""One layer of experts, forward and backward, by Hugging Face's Mixtral in PyTorch on CPUs: moe_torch.py WAY STEPS
EXPERTS TOP_K DIM HIDDEN TOKENS. WAY: an implementation of transformers' experts, as eager or grouped_mm; or products:
the nine products of every expert alone, of rows in balance. Prints each step's seconds."""
import os, sys, time
import torch
from transformers import MixtralConfig
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

way = sys.argv[1]
steps, experts, top_k, dim, hidden, tokens = map(int, sys.argv[2:])
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", len(os.sched_getaffinity(0)))))


def layer():
    config = MixtralConfig(hidden_size=dim, intermediate_size=hidden, num_local_experts=experts, num_experts_per_tok=top_k)
    config._experts_implementation = way
    block = MixtralSparseMoeBlock(config)
    with torch.no_grad():
        for p in block.parameters():
            p.normal_(0, 0.02)
    x, w = torch.randn(1, tokens, dim, requires_grad=True), torch.randn(1, tokens, dim)

    def step():
        for p in (x, *block.parameters()):
            p.grad = None
        y = block(x)
        y = y[0] if isinstance(y, tuple) else y
        (y * w).mean().backward()

    return step


def products():
    rows = tokens * top_k // experts
    x, h = torch.randn(rows, dim), torch.randn(rows, hidden)
    weights = torch.randn(experts, 3, hidden, dim)  # the third is that of down, transposed
    to_x, to_h, to_w = torch.empty(rows, dim), torch.empty(rows, hidden), torch.empty(hidden, dim)

    def step():
        for gate, up, down in weights:
            for weight in (gate, up, down):  # each: its output, the gradients of its input and of the weight
                torch.mm(x, weight.t(), out=to_h)
                torch.mm(h, weight, out=to_x)
                torch.mm(h.t(), x, out=to_w)

    return step


step = products() if way == "products" else layer()
for _ in range(steps):
    begin = time.perf_counter()
    step()
    print(f'{{"seconds": {time.perf_counter() - begin:.4f}}}', flush=True)
