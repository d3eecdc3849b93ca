"""Makes the files beside it: weights with scales, and what PyTorch widens them to.

    python make.py        needs torch and safetensors (2.15 made what is here)

packed.safetensors has matrices in float8 with a scale for each block of 16 x 32 (as config.json says), two of them experts of
one list, and experts in MXFP4; widened.safetensors has the same in float32.
"""
import json
import os

import torch
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

HERE = os.path.dirname(os.path.abspath(__file__))
BLOCK = (16, 32)
generator = torch.Generator().manual_seed(3)
packed, widened = {}, {}


def float8(name, rows, columns, dtype=torch.float32):
    w = (torch.randn(rows, columns, generator=generator) * 100).clamp(-448, 448).to(torch.float8_e4m3fn)
    w.view(torch.uint8)[0, :4] = torch.tensor([0x01, 0x87, 0x7E, 0x00], dtype=torch.uint8)  # the smallest ones, the largest, 0
    shape = [-(-rows // BLOCK[0]), -(-columns // BLOCK[1])]
    scale = (torch.rand(shape, generator=generator) / 1000 + 1e-5).to(dtype)
    whole = scale.float().repeat_interleave(BLOCK[0], 0).repeat_interleave(BLOCK[1], 1)[:rows, :columns]
    packed[name], packed[name + "_scale_inv"] = w, scale
    widened[name] = w.float() * whole


def mxfp4(name, experts, inputs, outputs):
    blocks = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8, generator=generator)
    scales = torch.randint(120, 132, blocks.shape[:3], dtype=torch.uint8, generator=generator)
    packed[name + "_blocks"], packed[name + "_scales"] = blocks, scales
    widened[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).contiguous()


float8("model.up.weight", 40, 70)
float8("model.down.weight", 70, 40, torch.bfloat16)
for e in range(3):
    float8(f"model.experts.{e}.gate.weight", 24, 70)
mxfp4("model.mixed.gate_up_proj", 3, 64, 20)
packed["model.bias"] = widened["model.bias"] = torch.randn(40, generator=generator)
save_file(packed, os.path.join(HERE, "packed.safetensors"))
save_file(widened, os.path.join(HERE, "widened.safetensors"))
with open(os.path.join(HERE, "config.json"), "w") as file:
    json.dump({"quantization_config": {"quant_method": "fp8", "weight_block_size": list(BLOCK)}}, file)
print({k: (list(v.shape), str(v.dtype)) for k, v in packed.items()})
