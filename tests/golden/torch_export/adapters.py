# Adapters of archives: losses of six steps of AdamW on A and B alone, where each adapted weight is W + 2 B A (Linear) or
# W + 2 (B A)^T (Conv1D, Embedding), as PEFT has them. Writes adapters/NAME/: an adapter as PEFT's file, the data, the losses.
# python tests/golden/torch_export/adapters.py
import json
import os

import torch
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
RANK, ALPHA = 3, 6
CASES = {
    "llama": (["q_proj", "v_proj", "down_proj"], []),
    "llama.core": (["q_proj", "v_proj", "down_proj"], []),
    "gpt2": (["c_attn", "c_fc"], ["wpe"]),
}


def adapt(weight, a, b, transposed):
    change = ALPHA / RANK * b @ a
    return weight + (change.T if transposed else change)


def make(name, projections, embeddings):
    torch.manual_seed(len(name))
    program = torch.export.load(f"{HERE}/{name}.pt2")
    module = program.module()
    weights = {n: p.detach() for n, p in module.named_parameters()}
    conv1d = name.startswith("gpt2")
    adapters, saved = {}, {}
    for path in weights:
        parts = path.split(".")
        if parts[-1] != "weight" or parts[-2] not in projections + embeddings:
            continue
        rows, columns = weights[path].shape
        transposed = conv1d or parts[-2] in embeddings
        outputs, inputs = (columns, rows) if transposed else (rows, columns)
        a = torch.randn(RANK, inputs) * 0.3
        b = torch.randn(outputs, RANK) * 0.05
        adapters[path] = (a.requires_grad_(), b.requires_grad_(), transposed)
        place = "base_model.model." + path[:-len(".weight")]
        names = ("lora_embedding_A", "lora_embedding_B") if parts[-2] in embeddings else ("lora_A.weight", "lora_B.weight")
        saved[f"{place}.{names[0]}"], saved[f"{place}.{names[1]}"] = a.detach().clone(), b.detach().clone()
    placeholder = [n for n in program.graph.nodes if n.name == "input_ids"][0].meta["val"]
    ids = torch.randint(0, 300, tuple(placeholder.shape))
    target = torch.randint(0, 300, ids.shape)
    optimizer = torch.optim.AdamW([t for a, b, _ in adapters.values() for t in (a, b)], lr=0.01, weight_decay=0.01)
    losses = []
    for _ in range(6):
        given = {**weights, **{p: adapt(weights[p], *ab) for p, ab in adapters.items()}}
        out = torch.func.functional_call(module, given, (ids,), strict=False)
        logits = out[0] if isinstance(out, tuple) else getattr(out, "logits", out)
        if isinstance(logits, dict):
            logits = logits["logits"]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), target.flatten())
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    to = f"{HERE}/adapters/{name}"
    os.makedirs(to, exist_ok=True)
    save_file(saved, f"{to}/adapter_model.safetensors")
    with open(f"{to}/adapter_config.json", "w") as file:
        json.dump({"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "lora_dropout": 0.0, "bias": "none",
                   "target_modules": projections + embeddings}, file)
    save_file({"input": ids.to(torch.int32), "target": target}, f"{to}/data.safetensors")
    with open(f"{to}/losses.tsv", "w") as file:
        file.write("".join(f"{x:.9g}\n" for x in losses))
    print(name, sorted(adapters), losses)


for case, (projections, embeddings) in CASES.items():
    make(case, projections, embeddings)
