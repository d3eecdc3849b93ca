#!/usr/bin/env python3
"""The losses that PyTorch and PEFT have in eight steps with adapters beside frozen weights that are stored narrower, which
bitsandbytes packs and unpacks: losses.tsv; and of NF4 the merged weights' sums of squares: merged.tsv.

  make.py WEIGHTS ADAPTERS TEXT FOLDER

WEIGHTS and ADAPTERS are folders that plans/causal_lm.lua with config.json and -D lora=4 exports before the first step, TEXT the
text that tests/scripts/programs/qlora.sh makes, FOLDER that of the results.
"""
import sys, numpy, torch
import bitsandbytes.functional as packed
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM
from peft import PeftModel

weights, adapters, text, to = sys.argv[1:]
config = LlamaConfig.from_json_file(__file__.rsplit("/", 1)[0] + "/config.json")
tokens = torch.from_numpy(numpy.fromfile(text, dtype=numpy.uint8)).long()
BATCH, SEQ = 4, 32

def nf4(w):
    """bitsandbytes' values; the sizes of blocks by its fallback for double quantization, the nearest of its map: its kernel for
    CPUs takes another one where a size is near the middle of two."""
    q, state = packed.quantize_4bit(w, blocksize=64, quant_type="nf4", compress_statistics=False)
    offset, sizes = state.absmax.mean(), packed.create_dynamic_map()
    groups = [(g - offset) / (g - offset).abs().max() for g in state.absmax.split(256)]
    most = [(g - offset).abs().max() for g in state.absmax.split(256)]
    nearest = [sizes[(g[:, None] - sizes).abs().argmin(1)] for g in groups]
    state.absmax = torch.cat([n * m for n, m in zip(nearest, most)]) + offset
    return packed.dequantize_4bit(q, state)

def int8(w):
    """Blocks of 32 numbers, whose scale is rounded up to a bfloat16."""
    blocks = w.reshape(-1, 32)
    most = blocks.abs().amax(1, keepdim=True)
    scale = (most / 127).bfloat16().float()
    above = (scale.bfloat16().view(torch.int16) + 1).view(torch.bfloat16).float()
    scale = torch.where(scale * 127 < most, above, scale)
    return (torch.round(blocks * (1 / scale)) * scale).reshape(w.shape)

def model(change, all):
    m = LlamaForCausalLM(config)
    m.load_state_dict(load_file(weights + "/model.safetensors"))
    for name, module in m.named_modules():
        stored = isinstance(module, torch.nn.Linear) and (all or name != "lm_head")
        if stored or (all and isinstance(module, torch.nn.Embedding)):
            module.weight.data = change(module.weight.data)
    return PeftModel.from_pretrained(m, adapters, is_trainable=True)

def trained(name, m, file):
    optimizer, losses = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1), []
    for step in range(8):
        at = step * BATCH * SEQ
        x = tokens[at : at + BATCH * SEQ].view(BATCH, SEQ)
        y = tokens[at + 1 : at + 1 + BATCH * SEQ].view(BATCH, SEQ)
        loss = torch.nn.functional.cross_entropy(m(x).logits.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append("%.8g" % loss.item())
    print(name, *losses, sep="\t", file=file)
    return m

with open(to + "/losses.tsv", "w") as file:
    m = trained("nf4", model(nf4, False), file).merge_and_unload()
    trained("int8", model(int8, False), file)
    trained("bfloat16", model(lambda w: w.bfloat16().float(), True), file)
with open(to + "/merged.tsv", "w") as file:
    for name, w in m.state_dict().items():
        print(name, "%.8g" % w.double().square().sum().item(), sep="\t", file=file)
