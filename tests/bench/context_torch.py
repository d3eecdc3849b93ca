"""Attention of one long sequence, forward and backward, by PyTorch on CPUs: context_torch.py STEPS SEQ HEADS SIZE. By
one process, or by some that torch.distributed.run started: PyTorch's ring attention (torch.distributed.tensor.
experimental, head-tail order) over gloo, with the CPU's flash attention, which context_parallel itself takes on GPUs alone."""
import os, sys, time
import torch, torch.distributed as dist
from torch.distributed.tensor.experimental._context_parallel import _attention as cp

steps, seq, heads, size = map(int, sys.argv[1:])
aten, ranks = torch.ops.aten, int(os.environ.get("WORLD_SIZE", 1))
torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks))
if ranks > 1:
    dist.init_process_group("gloo")
q, k, v, w = (torch.randn(1, heads, seq // ranks, size) for _ in range(4))
flash = aten._scaled_dot_product_flash_attention_for_cpu
flash_back = aten._scaled_dot_product_flash_attention_for_cpu_backward


def back(grad_out, query, key, value, out, logsumexp, is_causal, **rest):
    return flash_back(grad_out, query, key, value, out, logsumexp, 0.0, is_causal)


for step in range(steps):
    if ranks > 1:
        dist.barrier()
    begin = time.perf_counter()
    if ranks > 1:
        group = dist.group.WORLD
        out, lse, *_ = cp._templated_ring_attention(group, 2, flash, q, k, v, is_causal=True)
        cp._templated_ring_attention_backward(group, 2, back, w, "grad_out", q, k, v, out, lse, True)
        dist.barrier()
    else:
        out, lse = flash(q, k, v, 0.0, True)
        flash_back(w, q, k, v, out, lse, 0.0, True)
    if ranks == 1 or dist.get_rank() == 0:
        print(f'{{"seconds": {time.perf_counter() - begin:.4f}}}', flush=True)
