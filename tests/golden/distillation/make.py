#!/usr/bin/env python3
"""The losses that PyTorch has of plans/distill.lua in eight steps: losses.tsv.

  make.py STUDENT TEACHER TEXT > losses.tsv

STUDENT and TEACHER are folders that plans/causal_lm.lua exports before the first step, of config.json, and of teacher.json with
-D seed=1; TEXT is the text that tests/scripts/programs/distillation.sh makes.
"""
import sys, numpy, torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

own = __file__.rsplit("/", 1)[0]
tokens = torch.from_numpy(numpy.fromfile(sys.argv[3], dtype=numpy.uint8)).long()
BATCH, SEQ, ALPHA, T = 4, 32, 0.3, 2.0

def model(config, folder):
    m = LlamaForCausalLM(LlamaConfig.from_json_file(f"{own}/{config}"))
    missing = m.load_state_dict(load_file(folder + "/model.safetensors"), strict=False).missing_keys
    assert missing in ([], ["lm_head.weight"]), missing
    m.tie_weights()
    return m

student, teacher = model("config.json", sys.argv[1]), model("teacher.json", sys.argv[2])
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
losses = []
for step in range(8):
    at = step * BATCH * SEQ
    x = tokens[at : at + BATCH * SEQ].view(BATCH, SEQ)
    y = tokens[at + 1 : at + 1 + BATCH * SEQ].view(BATCH, SEQ)
    logits = student(x).logits
    with torch.no_grad():
        said = torch.log_softmax(teacher(x).logits / T, -1)
    apart = torch.nn.functional.kl_div(torch.log_softmax(logits / T, -1), said, log_target=True, reduction="none").sum(-1)
    loss = ALPHA * T * T * apart.mean() + (1 - ALPHA) * torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append("%.8g" % loss.item())
print(*losses, sep="\t")
