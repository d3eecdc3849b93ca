#!/usr/bin/env python3
"""Trains small models of Hugging Face: deepseek_v3/ and olmoe/. Each folder gets config.json, model.safetensors and
losses.json, as README.md says; and mixtral/ in micro-batches: micro_batches.json.
Usage: python make.py [deepseek_v3|olmoe|micro_batches ...] (transformers 5.23, PyTorch 2.13)."""

import copy
import json
import math
import pathlib
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, DeepseekV3Config, OlmoeConfig

HERE = pathlib.Path(__file__).parent
TEXT = (HERE / "../llama/text.txt").read_bytes()
BATCH, SEQ, STEPS = 4, 32, 20
BALANCE, CAPACITY = 0.01, 1.0

CONFIGS = {
    "deepseek_v3": DeepseekV3Config(
        vocab_size=256, hidden_size=32, intermediate_size=44, moe_intermediate_size=20, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=4, n_shared_experts=2, n_routed_experts=12, routed_scaling_factor=2.5,
        kv_lora_rank=12, q_lora_rank=16, qk_rope_head_dim=8, v_head_dim=6, qk_nope_head_dim=10, n_group=4, topk_group=2,
        num_experts_per_tok=3, first_k_dense_replace=1, max_position_embeddings=128, num_mtp_layers=0,
        initializer_range=0.1, bos_token_id=None, eos_token_id=None,
        rope_parameters={"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "beta_fast": 32, "beta_slow": 1,
                         "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 32}),
    "olmoe": OlmoeConfig(
        vocab_size=256, hidden_size=32, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_experts=12, num_experts_per_tok=3, max_position_embeddings=128,
        initializer_range=0.1, pad_token_id=None, bos_token_id=None, eos_token_id=None, output_router_logits=False),
}


def batch(step):
    """The inputs and targets of a step, as tpgen's programs take them."""
    n = BATCH * SEQ
    at = step * n % (len(TEXT) - n - 1)
    part = torch.tensor(list(TEXT[at:at + n + 1]))
    return part[:-1].view(BATCH, SEQ), part[1:].view(BATCH, SEQ)


def routers(model):
    return [layer.mlp.gate for layer in model.model.layers if hasattr(layer.mlp, "gate")]


class Watch:
    """The experts that the routers of a step chose, and how near the choices were; drops places beyond a capacity."""

    def __init__(self, model, capacity):
        self.capacity = capacity
        self.counts, self.dropped, self.gap = [], 0, math.inf
        self.hooks = [gate.register_forward_hook(self.see) for gate in routers(model)]

    def see(self, gate, _, output):
        logits, weights, ids = output
        experts = logits.shape[-1]
        self.counts.append(torch.bincount(ids.flatten(), minlength=experts).tolist())
        scores = logits.sigmoid() + gate.e_score_correction_bias if hasattr(gate, "e_score_correction_bias") else logits
        if hasattr(gate, "num_group"):
            groups = scores.view(len(scores), gate.num_group, -1).topk(2, -1)[0].sum(-1)
            best = groups.sort(-1, descending=True)
            self.gap = min(self.gap, (best[0][:, gate.topk_group - 1] - best[0][:, gate.topk_group]).min().item())
            allowed = torch.zeros_like(groups).scatter_(1, best[1][:, :gate.topk_group], 1)
            size = experts // gate.num_group
            scores = scores.masked_fill(allowed.repeat_interleave(size, 1) == 0, -math.inf)
        best = scores.sort(-1, descending=True)[0]
        self.gap = min(self.gap, (best[:, gate.top_k - 1] - best[:, gate.top_k]).min().item())
        if self.capacity is None:
            return output
        # A token has an expert once: the order of its k experts does not matter.
        most = max(1, math.ceil(self.capacity * SEQ * gate.top_k / experts))
        chosen = torch.nn.functional.one_hot(ids.view(BATCH, -1), experts)
        turn = ((chosen.cumsum(1) * chosen).sum(-1) - 1).view(ids.shape)
        self.dropped += (turn >= most).sum().item()
        return logits, weights * (turn < most), ids

    def end(self):
        for hook in self.hooks:
            hook.remove()


def balance(model, counts):
    """torchtitan's rule: before the optimizer's step."""
    for gate, places in zip(routers(model), counts):
        places = torch.tensor(places, dtype=torch.float32)
        change = BALANCE * torch.sign(places.mean() - places)
        gate.e_score_correction_bias += change - change.mean()


def train(model, balanced=False, capacity=None):
    decayed = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    result = {"losses": [], "grad_norms": [], "smallest_router_gap": [], "dropped": []}
    for step in range(STEPS):
        inputs, targets = batch(step)
        watch = Watch(model, capacity)
        logits = model(input_ids=inputs, use_cache=False).logits
        watch.end()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
        decayed.zero_grad()
        loss.backward()
        result["losses"].append(loss.item())
        result["grad_norms"].append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        result["smallest_router_gap"].append(watch.gap)
        result["dropped"].append(watch.dropped)
        with torch.no_grad():
            if balanced:
                balance(model, watch.counts)
        decayed.step()
        if step == 0:
            result["tokens_per_expert_step1"] = watch.counts
    if capacity is None:
        del result["dropped"]
    print("  smallest gap", min(result["smallest_router_gap"]), "losses", result["losses"][0], result["losses"][-1],
          "dropped", result.get("dropped"), result["tokens_per_expert_step1"])
    if balanced:
        result["bias_after"] = [gate.e_score_correction_bias.tolist() for gate in routers(model)]
    return result


def make(name, config):
    print(name)
    torch.manual_seed(28)
    folder = HERE / name
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float()
    with torch.no_grad():
        for gate in routers(model):
            gate.weight *= 4
            if hasattr(gate, "e_score_correction_bias"):
                gate.e_score_correction_bias.normal_(0, 0.05)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    sections = {"without_aux": {}}
    if name == "deepseek_v3":
        sections["balanced"] = {"balanced": True}
        sections["capacity"] = {"capacity": CAPACITY}
    all_of = {"model": type(model).__name__, "transformers": transformers.__version__, "torch": torch.__version__,
              "batch": BATCH, "seq": SEQ}
    for section, how in sections.items():
        result = train(copy.deepcopy(model), **how)
        first = result.pop("tokens_per_expert_step1")
        all_of.setdefault("tokens_per_expert_step1", first)
        all_of[section] = result
    (folder / "losses.json").write_text(json.dumps(all_of, indent=1) + "\n")


def micro_batches():
    """Mixtral with its load balancing loss, a forward for each so many samples: the mean of the forwards' losses."""
    all_of = {"samples": [1, 2]}
    for samples in all_of["samples"]:
        model = AutoModelForCausalLM.from_pretrained(HERE / "mixtral", attn_implementation="eager").float()
        adam = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
        result = all_of[f"with_aux_of_{samples}"] = {"losses": [], "grad_norms": []}
        for step in range(STEPS):
            inputs, targets = batch(step)
            adam.zero_grad()
            losses = []
            for part, target in zip(inputs.split(samples), targets.split(samples)):
                output = model(input_ids=part, use_cache=False, output_router_logits=True)
                loss = torch.nn.functional.cross_entropy(output.logits.flatten(0, 1), target.flatten())
                loss = (loss + model.config.router_aux_loss_coef * output.aux_loss) * samples / BATCH
                loss.backward()
                losses.append(loss.item())
            result["losses"].append(sum(losses))
            result["grad_norms"].append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
            adam.step()
    (HERE / "mixtral/micro_batches.json").write_text(json.dumps(all_of, indent=1) + "\n")


torch.set_num_threads(1)
for each in sys.argv[1:] or [*CONFIGS, "micro_batches"]:
    if each == "micro_batches":
        micro_batches()
    else:
        make(each, CONFIGS[each])
