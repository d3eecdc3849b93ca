#!/usr/bin/env python3
"""Writes losses.json beside itself: 20 steps of AdamW of tests/golden/llama's model on its text, whose lines are
documents: no token sees another line, positions begin anew in each, and what follows the end of a line is no
target. The model is Hugging Face's with eager attention and a mask of blocks. `alone`: the first losses of
the lines in its first 256 tokens, each run alone: where it begins, its length, its targets, its loss. Needs PyTorch and transformers."""
import json, os
import torch
import torch.nn.functional as F
import transformers as hf
from safetensors.torch import load_file

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA = os.path.join(HERE, "..", "llama")
STEPS, BATCH, SEQ, PACKED, EOS, IGNORED = 20, 4, 64, 256, 10, -100
NAMES = [("tok_embeddings", "model.embed_tokens"), ("attention_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm"),
         ("attention.wq", "self_attn.q_proj"), ("attention.wk", "self_attn.k_proj"), ("attention.wv", "self_attn.v_proj"),
         ("attention.wo", "self_attn.o_proj"), ("feed_forward.w1", "mlp.gate_proj"), ("feed_forward.w2", "mlp.down_proj"),
         ("feed_forward.w3", "mlp.up_proj"), ("output", "lm_head")]

torch.manual_seed(0)
config = hf.LlamaConfig(hidden_size=128, intermediate_size=352, num_hidden_layers=2, num_attention_heads=8, head_dim=16,
                        num_key_value_heads=4, rms_norm_eps=1e-5, vocab_size=512, max_position_embeddings=64)
config._attn_implementation = "eager"
model = hf.LlamaForCausalLM(config)


def name_in_files(name):
    for ours, theirs in NAMES:
        name = name.replace(ours, theirs)
    return name if name.startswith(("model.", "lm_head.")) else "model." + name


weights = load_file(os.path.join(LLAMA, "llama.safetensors"))
model.load_state_dict({name_in_files(name): tensor for name, tensor in weights.items()})
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
text = torch.tensor(list(open(os.path.join(LLAMA, "text.txt"), "rb").read()))


def loss_of(x, y):
    """x, y: [batch, sequence] tokens and the next ones."""
    ends = x == EOS
    document = ends.cumsum(1) - ends.long()
    first = torch.tensor([[row.tolist().index(d) for d in row] for row in document])
    place = torch.arange(x.shape[1]) - first
    seen = (document[:, :, None] == document[:, None, :]) & torch.ones(x.shape[1], x.shape[1]).tril().bool()
    mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[:, None]
    logits = model(input_ids=x, attention_mask=mask, position_ids=place, use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1), y.masked_fill(ends, IGNORED).flatten())


def alone():
    found, at, packed = [], 0, text[:PACKED].tolist()
    while at < PACKED:
        end = packed.index(EOS, at) + 1 if EOS in packed[at:] else PACKED
        x, y = text[at:end][None], text[at + 1:end + 1][None]
        targets = int((x != EOS).sum())
        if targets:
            with torch.no_grad():
                found.append((at, end - at, targets, float(loss_of(x, y))))
        at = end
    return found


lines, losses = alone(), []
for step in range(STEPS):
    at = step * BATCH * SEQ
    x, y = text[at:at + BATCH * SEQ].view(BATCH, SEQ), text[at + 1:at + 1 + BATCH * SEQ].view(BATCH, SEQ)
    loss = loss_of(x, y)
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
with open(os.path.join(HERE, "losses.json"), "w") as file:
    json.dump({"losses": losses, "alone": lines}, file)
    file.write("\n")
