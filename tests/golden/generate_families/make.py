"""Makes the folders beside it: small models of random weights, and Hugging Face's greedy tokens for them.

    python make.py        needs torch and transformers (5.23 made what is here)

Each has config.json and model.safetensors (bfloat16, whose values float32 holds) as save_pretrained writes
them, and generate.json: runs of a prompt, its tokens (greedy, float32), and the five best logits of each step.
config4.json is the same configuration as transformers 4 spells it. mistral has generate_bf16.json, too: each key
and value is rounded to bfloat16 before attention, as a cache of that type does.
"""
import json
import os
import shutil
import sys

import torch
import transformers.models.mistral.modeling_mistral as mistral
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = dict(vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128, bos_token_id=None, eos_token_id=None)

LONGROPE4 = {"type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 6.0]}
LONGROPE = {"rope_theta": 1e4, "rope_type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 6.0]}

# Name: class of the configuration, of the model, what differs, and what version 4 has in the place of
# rope_parameters; "-" means that the key is not there.
FAMILIES = {
    "mistral": (MistralConfig, MistralForCausalLM,
                dict(head_dim=8, sliding_window=6, rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
                dict(rope_theta=5000.0)),
    "mistral_whole": (MistralConfig, MistralForCausalLM,
                      dict(head_dim=None, sliding_window=None, tie_word_embeddings=True,
                           rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
                      dict(rope_theta=1e6)),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM,
              dict(tie_word_embeddings=True, sliding_window=6, use_sliding_window=False,
                   rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
              dict(rope_theta=1e6, rope_scaling=None, layer_types="-")),
    "qwen2_window": (Qwen2Config, Qwen2ForCausalLM,
                     dict(use_sliding_window=True, sliding_window=5, max_window_layers=1,
                          rope_parameters={"rope_type": "default", "rope_theta": 1e4}),
                     dict(rope_theta=1e4, layer_types="-")),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM,
              dict(head_dim=8, rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
              dict(rope_theta=1e6, rope_scaling=None, layer_types="-")),
    "llama_bias": (LlamaConfig, LlamaForCausalLM,
                   dict(head_dim=4, attention_bias=True, tie_word_embeddings=True,
                        rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}),
                   dict(rope_theta=1e4, rope_scaling={"type": "linear", "factor": 4.0}, head_dim="-")),
    "llama_dynamic": (LlamaConfig, LlamaForCausalLM,
                      dict(rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}),
                      dict(rope_theta=1e4, rope_scaling={"type": "dynamic", "factor": 4.0})),
    "llama_short": (LlamaConfig, LlamaForCausalLM, dict(rope_parameters=dict(LONGROPE, original_max_position_embeddings=80)),
                    dict(rope_theta=1e4, rope_scaling=dict(LONGROPE4, original_max_position_embeddings=80))),
    "llama_long": (LlamaConfig, LlamaForCausalLM, dict(rope_parameters=dict(LONGROPE, original_max_position_embeddings=6)),
                   dict(rope_theta=1e4, rope_scaling=dict(LONGROPE4, original_max_position_embeddings=6))),
    "llama_groups": (LlamaConfig, LlamaForCausalLM,
                     dict(hidden_size=24, num_attention_heads=12, num_key_value_heads=4, head_dim=4,
                          rope_parameters={"rope_type": "default", "rope_theta": 1e4}),
                     dict(rope_theta=1e4)),
}


def spread(model):
    """Random weights with which logits spread."""
    generator = torch.Generator().manual_seed(11)
    for name, p in model.named_parameters():
        if p.dim() == 1:
            scale = 0.3
            p.data = (0 if name.endswith("bias") else 1) + scale * torch.randn(p.shape, generator=generator)
        else:
            scale = 1.0 if "embed" in name or "lm_head" in name else 2.0 / p.shape[1] ** 0.5
            p.data = scale * torch.randn(p.shape, generator=generator)
        p.data = p.data.to(torch.bfloat16).float()
    model.tie_weights()


def greedy(model, prompt, count):
    ids, top = torch.tensor([prompt]), []
    tokens = []
    gap = 1e9
    with torch.no_grad():
        for _ in range(count):
            logits = model(ids).logits[0, -1]
            best = torch.topk(logits, 5)
            gap = min(gap, (best.values[0] - best.values[1]).item())
            top.append([[i, round(v, 5)] for i, v in zip(best.indices.tolist(), best.values.tolist())])
            tokens.append(best.indices[0].item())
            ids = torch.cat([ids, best.indices[:1].unsqueeze(0)], 1)
    return tokens, top, gap


def write_runs(model, path):
    generator = torch.Generator().manual_seed(3)
    runs, least = [], 1e9
    # Of long factors: prompts that are longer than the original length.
    for length in (12, 7, 19) if os.path.basename(os.path.dirname(path)) == "llama_long" else (1, 7, 19):
        prompt = torch.randint(0, 64, (length,), generator=generator).tolist()
        tokens, top, gap = greedy(model, prompt, 20)
        runs.append(dict(prompt=prompt, tokens=tokens, top5=top))
        least = min(least, gap)
    with open(path, "w") as file:
        json.dump(dict(smallest_gap=round(least, 5), runs=runs), file, separators=(",", ":"))
        file.write("\n")
    print(path, "smallest gap", least)


def write_rounded_runs(model, path):
    attention = mistral.eager_attention_forward

    def rounded(module, query, key, value, *arguments, **options):
        def kept(x):
            return x.to(torch.bfloat16).float()

        return attention(module, query, kept(key), kept(value), *arguments, **options)

    mistral.eager_attention_forward = rounded
    write_runs(model, path)
    mistral.eager_attention_forward = attention


def make(name):
    config_class, model_class, differs, four = FAMILIES[name]
    config = config_class(**{**SIZES, **differs}, attn_implementation="eager")
    model = model_class(config).eval()
    spread(model)
    folder = os.path.join(HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    write_runs(model, os.path.join(folder, "generate.json"))
    if name == "mistral":
        write_rounded_runs(model, os.path.join(folder, "generate_bf16.json"))
    model.to(torch.bfloat16).save_pretrained(folder)
    if os.path.exists(os.path.join(folder, "generation_config.json")):
        os.remove(os.path.join(folder, "generation_config.json"))
    with open(os.path.join(folder, "config.json")) as file:
        written = json.load(file)
    for key, value in four.items():
        written.pop(key, None)
        if value != "-":
            written[key] = value
    written.pop("rope_parameters", None)
    written["torch_dtype"] = written.pop("dtype", "bfloat16")
    written["transformers_version"] = "4.51.3"
    with open(os.path.join(folder, "config4.json"), "w") as file:
        json.dump(written, file, indent=2, sort_keys=True)
        file.write("\n")


torch.set_num_threads(1)
for each in sys.argv[1:] or FAMILIES:
    make(each)
