#!/usr/bin/env python3
"""Archives of small random models of transformers, exported with a symbolic number of tokens, and their greedy tokens.

    make.py [FAMILY...]   by default those of the tests, whose archives are packed in archives.tar.xz then; `all`: every
                          family below

Needs PyTorch 2.15 and transformers 5.24. Writes FAMILY.json, {"runs": [{"prompt", "tokens", "top5"}]}, and FAMILY.pt2; of
recurrent models, whose code has a fixed number of tokens, FAMILY.safetensors (tests/plans/causal/recurrent.lua)."""
import io
import json
import lzma
import os
import sys
import tarfile

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

COMMON = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=128, head_dim=8, pad_token_id=0, bos_token_id=1, eos_token_id=2)
GPT2 = dict(n_embd=32, n_layer=2, n_head=4, n_positions=128)
LAYERS = dict(layer_types=["sliding_attention", "full_attention"], sliding_window=12)
EXPERTS = dict(num_experts_per_tok=2)
FAMILIES = {
    "llama": {}, "masked": {}, "qwen3": {}, "phi3": {}, "olmo2": {}, "granite": {}, "smollm3": {}, "cohere": {}, "glm4": {}, "gpt_neox": {},
    "mistral": dict(sliding_window=12), "gemma3_text": dict(query_pre_attn_scalar=8, **LAYERS), "exaone4": LAYERS,
    "gpt2": GPT2, "gptj": dict(rotary_dim=4, **GPT2), "opt": dict(ffn_dim=48, word_embed_proj_dim=32),
    "starcoder2": dict(sliding_window=None), "falcon": dict(new_decoder_architecture=False, multi_query=True, alibi=False),
    "bloom": dict(n_layer=2, n_head=4), "mixtral": dict(num_local_experts=4, **EXPERTS),
    "qwen3_moe": dict(num_experts=4, moe_intermediate_size=32, **EXPERTS),
    "gpt_oss": dict(num_local_experts=4, **EXPERTS, **LAYERS),
    "deepseek_v3": dict(num_key_value_heads=4, n_routed_experts=4, n_group=1, topk_group=1, first_k_dense_replace=1,
                        moe_intermediate_size=32, kv_lora_rank=16, q_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8,
                        v_head_dim=8, n_shared_experts=1, **EXPERTS),
    "mpt": dict(d_model=32, n_heads=4, n_layers=2, max_seq_len=256, expansion_ratio=2),
    "lfm2": dict(layer_types=["conv", "full_attention"], conv_L_cache=3),
}
RECURRENT = {
    "mamba2": dict(num_heads=8, head_dim=8, state_size=4, n_groups=2, expand=2, layer_norm_epsilon=1e-5,
                   tie_word_embeddings=False),
    "rwkv": dict(context_length=128, rescale_every=0),
    "qwen3_next": dict(layer_types=["linear_attention", "full_attention"], mlp_only_layers=[0, 1], linear_num_value_heads=4,
                       linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=8, linear_conv_kernel_dim=4),
}
OF_TESTS = ["masked", "bloom", "exaone4", "gpt_neox", "gpt_oss", "lfm2", "mpt", "opt", *RECURRENT]


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(input_ids=tokens, use_cache=False).logits


class Normed(torch.nn.Module):
    """Normalizes each channel over all tokens: it cannot be continued."""

    def __init__(self):
        super().__init__()
        self.words, self.norm, self.output = torch.nn.Embedding(12, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 12)

    def forward(self, tokens):
        return self.output(self.norm(self.words(tokens).transpose(1, 2)).transpose(1, 2))


# As decoders are exported that are fed with padding: positions count what the mask has.
class Masked(Logits):
    def forward(self, tokens, mask=None):
        mask = torch.ones_like(tokens) if mask is None else mask
        positions = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)
        return self.model(input_ids=tokens, attention_mask=mask, position_ids=positions, use_cache=False).logits


def greedy(model, prompt, count):
    tokens, top = list(prompt), []
    for _ in range(count):
        with torch.no_grad():
            logits = model(torch.tensor([tokens]))[0, -1]
        best = torch.topk(logits, 5)
        top.append([[int(i), float(v)] for v, i in zip(best.values, best.indices)])
        tokens.append(top[-1][0][0])
    return {"prompt": list(prompt), "tokens": tokens[len(prompt):], "top5": top}


def make(family, folder):
    torch.manual_seed(1)
    settings = {**COMMON, **(FAMILIES[family] if family in FAMILIES else RECURRENT[family])}
    if family == "falcon":
        settings.pop("head_dim")
    config = AutoConfig.for_model("llama" if family == "masked" else family, **settings)
    model = (Masked if family == "masked" else Logits)(AutoModelForCausalLM.from_config(config).eval())
    for parameter in model.parameters():
        if parameter.dim() > 1 or family in RECURRENT:
            wide = family in RECURRENT and parameter.dim() != 2
            torch.nn.init.normal_(parameter, std=0.4 if wide else 0.15)
    if family in RECURRENT:
        save_file({name: t.contiguous() for name, t in model.model.state_dict().items()},
                  os.path.join(folder, family + ".safetensors"))
    else:
        export(model, os.path.join(folder, family + ".pt2"), 2 if family == "masked" else 1)
    runs = []
    for count in (1, 4, 9, 17, 30):
        torch.manual_seed(count)
        runs.append(greedy(model, torch.randint(3, 96, (count,)).tolist(), 20))
    with open(os.path.join(folder, family + ".json"), "w") as file:
        json.dump({"runs": runs}, file)
        file.write("\n")


def export(model, path, inputs=1):
    sizes = ({1: torch.export.Dim("tokens", min=2, max=128)},) * inputs
    given = torch.randint(3, 96, (1, 24)), torch.ones(1, 24, dtype=torch.long)
    with torch.no_grad():
        exported = torch.export.export(model, given[:inputs], dynamic_shapes=sizes, strict=False)
    torch.export.save(exported, path)


def pack(folder):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name in sorted(name for name in os.listdir(folder) if name.endswith(".pt2")):
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                data = file.read()
            about = tarfile.TarInfo(name)
            about.size = len(data)
            tar.addfile(about, io.BytesIO(data))
            os.remove(path)
    with open(os.path.join(folder, "archives.tar.xz"), "wb") as file:
        file.write(lzma.compress(made.getvalue(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    names, here = sys.argv[1:], os.path.dirname(os.path.abspath(__file__))
    for name in [*FAMILIES, *RECURRENT] if names == ["all"] else names or OF_TESTS:
        make(name, here)
    if not names:
        export(Normed(), os.path.join(here, "batch_norm.pt2"))
        pack(here)
