"""Small models of Hugging Face transformers of each family of plans/lib/families.lua: config.json, weights (bfloat16, which
float32 holds), tokens, the losses of 10 steps of AdamW, and generate.json, greedy tokens before them; and defaults.json, what
each configuration is where a file says nothing. Arguments: only these models; `defaults`: none."""
import copy
import json
import os
import sys

import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, BATCH, SEQ = 10, 4, 16
SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48, vocab_size=96,
             max_position_embeddings=64, pad_token_id=3, bos_token_id=None, eos_token_id=None)
EXPERTS = dict(num_experts_per_tok=2)
YARN = dict(rope_type="yarn", rope_theta=150000.0, factor=8.0, beta_fast=32.0, beta_slow=1.0, original_max_position_embeddings=8)
LONG = dict(rope_type="longrope", rope_theta=1e4, short_factor=[1.0, 1.2, 1.5], long_factor=[1.0, 2.0, 5.0], partial_rotary_factor=0.75)
NO_SIZES = dict(bos_token_id=0, eos_token_id=0)
MODELS = {
    "llama2": ("Llama", dict(num_key_value_heads=4)),
    "llama3": ("Llama", dict(head_dim=16, attention_bias=True, mlp_bias=True, tie_word_embeddings=True, rope_parameters=dict(
        rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16))),
    "smollm3": ("SmolLM3", dict(num_hidden_layers=4, no_rope_layer_interval=2)),
    "smollm3_window": ("SmolLM3", dict(num_hidden_layers=3, no_rope_layers=[0, 1, 0], use_sliding_window=True, sliding_window=5)),
    "mistral": ("Mistral", dict(sliding_window=5, head_dim=16)),
    "ministral": ("Ministral", dict(sliding_window=6, head_dim=16, layer_types=["full_attention", "sliding_attention"])),
    "mixtral": ("Mixtral", dict(num_local_experts=4, sliding_window=7, **EXPERTS)),
    "qwen2": ("Qwen2", dict(use_sliding_window=True, sliding_window=5, max_window_layers=1)),
    "qwen3": ("Qwen3", dict(head_dim=16, attention_bias=True)),
    "qwen3_moe": ("Qwen3Moe", dict(num_hidden_layers=3, head_dim=16, num_experts=4, moe_intermediate_size=24, mlp_only_layers=[1],
        norm_topk_prob=True, **EXPERTS)),
    "gemma": ("Gemma", dict(head_dim=16)),
    "gemma2": ("Gemma2", dict(head_dim=16, query_pre_attn_scalar=24, sliding_window=5, attn_logit_softcapping=2.0, final_logit_softcapping=1.5)),
    "gemma3": ("Gemma3Text", dict(num_hidden_layers=4, head_dim=16, query_pre_attn_scalar=24, sliding_window=5, layer_types=[
        "sliding_attention", "full_attention", "sliding_attention", "sliding_attention"], rope_parameters={
        "sliding_attention": dict(rope_type="default", rope_theta=100.0), "full_attention": dict(rope_type="linear", factor=4.0, rope_theta=1e6)})),
    "phi3": ("Phi3", dict(sliding_window=9)),
    "phi4": ("Phi3", dict(original_max_position_embeddings=8, partial_rotary_factor=0.75, rope_parameters=LONG)),
    "gpt_oss": ("GptOss", dict(num_hidden_layers=3, head_dim=16, num_local_experts=4, sliding_window=5, rope_parameters=YARN, **EXPERTS)),
    "deepseek_v3": ("DeepseekV3", dict(num_hidden_layers=3, num_key_value_heads=4, moe_intermediate_size=24, n_routed_experts=8, n_group=4,
        topk_group=2, n_shared_experts=1, first_k_dense_replace=1, q_lora_rank=12, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8,
        v_head_dim=12, rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=8.0, mscale=1.0, mscale_all_dim=1.0,
        original_max_position_embeddings=8), **EXPERTS)),
    "olmo2": ("Olmo2", dict(attention_bias=True)),
    "olmoe": ("Olmoe", dict(num_experts=4, clip_qkv=1.5, **EXPERTS)),
    "granite": ("Granite", dict(attention_multiplier=0.2, embedding_multiplier=6.0, residual_multiplier=0.4, logits_scaling=2.0)),
    "glm": ("Glm", dict(head_dim=16)),
    "glm4": ("Glm4", dict(head_dim=16, attention_bias=False)),
    "gpt2": ("GPT2", dict(n_embd=32, n_layer=2, n_head=4, n_positions=32, vocab_size=96, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **NO_SIZES)),
    "gpt_neox": ("GPTNeoX", dict(use_parallel_residual=False, rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5))),
    "qwen3_moe_sparse": ("Qwen3Moe", dict(num_hidden_layers=4, head_dim=8, num_experts=4, moe_intermediate_size=16, decoder_sparse_step=2,
        attention_bias=True, use_sliding_window=True, sliding_window=5, tie_word_embeddings=True, **EXPERTS)),
    "deepseek_v3_plain": ("DeepseekV3", dict(num_key_value_heads=4, moe_intermediate_size=16, n_routed_experts=4, n_group=1, topk_group=1,
        first_k_dense_replace=0, q_lora_rank=12, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=12, rms_norm_eps=0.02,
        norm_topk_prob=False, rope_interleave=False, routed_scaling_factor=1.5, **EXPERTS)),
    "gpt2_scaled": ("GPT2", dict(n_embd=32, n_layer=2, n_head=4, n_positions=32, vocab_size=96, n_inner=40, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, activation_function="relu", scale_attn_by_inverse_layer_idx=True, reorder_and_upcast_attn=True, tie_word_embeddings=False,
        **NO_SIZES)),
    "gpt_neox_parallel": ("GPTNeoX", dict(num_attention_heads=2, attention_bias=False, layer_norm_eps=0.01, rope_parameters=dict(
        rope_type="linear", factor=2.0, rope_theta=50.0, partial_rotary_factor=0.25))),
    "mixtral_gelu": ("Mixtral", dict(num_local_experts=4, hidden_act="gelu", **EXPERTS)),
    "deepseek_v3_bias": ("DeepseekV3", dict(num_key_value_heads=4, moe_intermediate_size=16, n_routed_experts=4, n_group=1, topk_group=1,
        n_shared_experts=1, first_k_dense_replace=1, q_lora_rank=12, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=12,
        attention_bias=True, hidden_act="gelu_pytorch_tanh", **EXPERTS)),
    "ministral3": ("Ministral3", dict(head_dim=16, sliding_window=11, rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=8.0,
        original_max_position_embeddings=4, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.5))),
    "olmo3": ("Olmo3", dict(num_hidden_layers=4, sliding_window=5, rope_scaling=dict(rope_type="yarn", factor=8.0,
        original_max_position_embeddings=8, attention_factor=1.2, beta_fast=32.0, beta_slow=1.0))),
    "exaone4": ("Exaone4", dict(num_hidden_layers=4, sliding_window=5)),
    "seed_oss": ("SeedOss", dict(head_dim=16, attention_dropout=0.0, residual_dropout=0.0, attention_out_bias=True, mlp_bias=True)),
    "arcee": ("Arcee", dict(mlp_bias=True)),
    "ernie4_5": ("Ernie4_5", dict(head_dim=16, use_bias=True)),
    "helium": ("Helium", dict(head_dim=8, attention_bias=True)),
    "hunyuan_v1_dense": ("HunYuanDenseV1", dict(head_dim=16, num_hidden_layers=3)),
    "starcoder2": ("Starcoder2", dict(sliding_window=7)),
    "phi": ("Phi", dict(qk_layernorm=True)),
    "stablelm": ("StableLm", dict(use_qkv_bias=True, qk_layernorm=True, rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5))),
    "nemotron": ("Nemotron", dict(attention_bias=True)),
    "cohere": ("Cohere", dict(logit_scale=0.5, use_qk_norm=True)),
    "cohere2": ("Cohere2", dict(num_hidden_layers=4, sliding_window=5, logit_scale=0.5)),
    "glm4_moe": ("Glm4Moe", dict(moe_intermediate_size=16, n_routed_experts=4, use_qk_norm=True, attention_bias=True, num_mtp_layers=0,
        routed_scaling_factor=1.5, **EXPERTS)),
    "qwen2_moe": ("Qwen2Moe", dict(num_hidden_layers=3, num_experts=4, moe_intermediate_size=12, shared_expert_intermediate_size=20,
        mlp_only_layers=[1], **EXPERTS)),
    "granitemoe": ("GraniteMoe", dict(attention_multiplier=0.2, embedding_multiplier=6.0, residual_multiplier=0.4, logits_scaling=2.0,
        intermediate_size=16, num_local_experts=4, **EXPERTS)),
    "olmo": ("Olmo", dict(clip_qkv=1.0)),
    "opt": ("OPT", dict(ffn_dim=48, dropout=0.0)),
    "bloom": ("Bloom", dict(hidden_size=24, num_attention_heads=6)),
    "gptj": ("GPTJ", dict(n_embd=32, n_layer=2, n_head=4, n_positions=32, n_inner=40, vocab_size=96, rotary_dim=4, **NO_SIZES)),
    "mpt": ("Mpt", dict(d_model=24, n_heads=6, n_layers=2, max_seq_len=32, vocab_size=96, attn_config=dict(clip_qkv=1.0, softmax_scale=0.3))),
    "mistral3": ("Mistral3", dict(text_config=dict(SIZES, model_type="mistral", head_dim=8, sliding_window=7), tie_word_embeddings=False,
        vision_config=dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, image_size=16, patch_size=8))),
    "falcon_alibi": ("Falcon", dict(hidden_size=48, num_attention_heads=6, alibi=True, parallel_attn=False, bias=True, multi_query=False, **NO_SIZES)),
    "falcon_alibi_one_key": ("Falcon", dict(alibi=True, multi_query=True, **NO_SIZES)),
    "falcon": ("Falcon", dict(parallel_attn=False, bias=True, multi_query=False, **NO_SIZES)),
    "falcon_one_norm": ("Falcon", dict(new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1, **NO_SIZES)),
}
# Of DeepSeek-V3 also in float8 with scales of blocks, and of gpt-oss with experts in MXFP4, as their authors' files are.
BLOCK = [16, 8]
MODELS["deepseek_v3_float8"] = (MODELS["deepseek_v3"][0], dict(MODELS["deepseek_v3"][1], num_hidden_layers=2))
MODELS["gpt_oss_mxfp4"] = (MODELS["gpt_oss"][0], dict(MODELS["gpt_oss"][1], num_hidden_layers=2, intermediate_size=64))
# What the file says otherwise, for the same model; None: nothing.
SPELLINGS = {"gpt_neox_parallel": dict(rope_parameters=None, rotary_emb_base=50, rotary_pct=0.25, rope_scaling={"type": "linear", "factor": 2.0},
    rope_theta=70.0, partial_rotary_factor=0.5)}
TYPES = ("llama smollm3 mistral ministral mixtral qwen2 qwen3 qwen3_moe gemma gemma2 gemma3_text phi3 gpt_oss deepseek_v3 olmo2 olmoe granite glm glm4 "
         "gpt2 gpt_neox falcon ministral3 olmo3 exaone4 seed_oss arcee ernie4_5 helium hunyuan_v1_dense starcoder2 phi stablelm nemotron cohere "
         "cohere2 glm4_moe qwen2_moe granitemoe olmo opt bloom gptj mpt").split()


def float8(weights, name, p, generator):
    scale = torch.rand([-(-n // size) for n, size in zip(p.shape, BLOCK)], generator=generator) / 1000 + 1e-4
    whole = scale.repeat_interleave(BLOCK[0], 0).repeat_interleave(BLOCK[1], 1)[:p.shape[0], :p.shape[1]]
    weights[name], weights[name + "_scale_inv"] = (p / whole).clamp(-448, 448).to(torch.float8_e4m3fn), scale
    p.copy_(weights[name].float() * whole)


def mxfp4(weights, name, p, generator):
    experts, inputs, outputs = p.shape
    blocks = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8, generator=generator)
    scales = torch.randint(121, 125, blocks.shape[:3], dtype=torch.uint8, generator=generator)
    weights[name + "_blocks"], weights[name + "_scales"] = blocks, scales
    p.copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))


def pack(name, model, generator):
    """Rounds weights to what a packed file can hold. Gives the file's tensors, by name; the others stay as they are."""
    weights = {}
    for key, p in model.named_parameters():
        if name.endswith("float8") and p.dim() >= 2 and ".layers." in key and not key.endswith("mlp.gate.weight"):
            if p.dim() == 2:
                float8(weights, key, p, generator)
                continue
            head, _, part = key.rpartition(".")  # [experts, outputs, inputs], gate and up in one
            for e in range(len(p)):
                if part == "down_proj":
                    float8(weights, f"{head}.{e}.down_proj.weight", p[e], generator)
                else:
                    for half, called in zip(p[e].chunk(2), ("gate_proj", "up_proj")):
                        float8(weights, f"{head}.{e}.{called}.weight", half, generator)
        elif name.endswith("mxfp4") and p.dim() == 3:
            mxfp4(weights, key, p, generator)
    return weights


def write_packed(folder, packed):
    weights = load_file(os.path.join(folder, "model.safetensors"))
    for key in packed:
        weights.pop(key.removesuffix("_blocks").removesuffix("_scales"), None)
    save_file({**weights, **packed}, os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    config["quantization_config"] = {"quant_method": "mxfp4"} if any(k.endswith("_blocks") for k in packed) else {
        "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": BLOCK}
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file, indent=2, sort_keys=True)
        file.write("\n")


@torch.no_grad()
def greedy(model, prompt, count=12):
    tokens, top = list(prompt), []
    for _ in range(count):
        best = torch.topk(model(torch.tensor([tokens]), use_cache=False).logits[0, -1], 5)
        top.append([[token, round(logit, 6)] for token, logit in zip(best.indices.tolist(), best.values.tolist())])
        tokens.append(top[-1][0][0])
    return {"prompt": prompt, "tokens": tokens[len(prompt):], "top5": top}


def spell(folder, changes):
    path = os.path.join(folder, "config.json")
    before = hf.AutoConfig.from_pretrained(folder).rope_parameters
    with open(path) as file:
        config = {k: v for k, v in {**json.load(file), **changes}.items() if k not in changes or v is not None}
    with open(path, "w") as file:
        json.dump(config, file, indent=2, sort_keys=True)
        file.write("\n")
    after = hf.AutoConfig.from_pretrained(folder).rope_parameters
    assert {k: v for k, v in after.items() if k != "type"} == before, (after, before)


def make(name):
    of, differs = MODELS[name]
    sizes = {} if name in ("gpt2", "gptj", "mpt", "mistral3") else SIZES
    if of in ("Falcon", "Bloom"):
        sizes = {k: v for k, v in SIZES.items() if k in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")}
    config = getattr(hf, of + "Config")(**{**sizes, **differs})
    config._attn_implementation = "sdpa" if "alibi" in name else "eager"  # eager adds ALiBi twice; sdpa is the default
    if hasattr(config, "_experts_implementation"):
        config._experts_implementation = "eager"
    torch.manual_seed(7)
    generator = torch.Generator().manual_seed(11)
    model = getattr(hf, {"GPT2": "GPT2LMHeadModel", "Gemma3Text": "Gemma3ForCausalLM",
        "Mistral3": "Mistral3ForConditionalGeneration"}.get(of, of + "ForCausalLM"))(config).train()
    with torch.no_grad():
        for key, p in model.named_parameters():  # nothing begins as 0 or 1
            p.add_(0.1 * torch.randn(p.shape, generator=generator))
            p.copy_(p.to(torch.bfloat16).float())
        for key, b in model.named_buffers():
            if key.endswith("e_score_correction_bias"):
                b.copy_((0.1 * torch.randn(b.shape, generator=generator)).to(torch.bfloat16).float())
        packed = pack(name, model, generator)
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)
    if os.path.exists(os.path.join(folder, "generation_config.json")):
        os.remove(os.path.join(folder, "generation_config.json"))
    if name == "mistral3":  # the language model's alone
        file = os.path.join(folder, "model.safetensors")
        save_file({key: w for key, w in load_file(file).items() if key.startswith("language_model.")}, file)
    if packed:
        write_packed(folder, packed)
    if name in SPELLINGS:
        spell(folder, SPELLINGS[name])
    tokens = torch.randint(0, 96, (STEPS * BATCH * SEQ + 1,), generator=generator)
    runs = [greedy(model.eval(), tokens[:n].tolist()) for n in (9, 17)]  # longer than the original lengths of scaled positions
    with open(os.path.join(folder, "generate.json"), "w") as file:
        json.dump({"runs": runs}, file)
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
    losses = []
    for step in range(STEPS):
        ids = tokens[step * BATCH * SEQ:][:BATCH * SEQ + 1]
        logits = model(ids[:-1].view(BATCH, SEQ)).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[1:])
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tokens.numpy().astype("<u2").tofile(os.path.join(folder, "tokens.u16"))
    json.dump(losses, open(os.path.join(folder, "losses.json"), "w"))
    print(name, losses[0], losses[-1], sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder)))


def defaults():
    made = {}
    for kind in TYPES:
        whole = hf.AutoConfig.for_model(kind).to_dict()
        made[kind] = {k: v for k, v in whole.items() if k not in ("transformers_version", "architectures", "id2label", "label2id")}
    with open(os.path.join(HERE, "defaults.json"), "w") as file:
        json.dump(made, file, separators=(",", ":"), sort_keys=True)
        file.write("\n")


for each in [name for name in sys.argv[1:] if name != "defaults"] or [name for name in MODELS if not sys.argv[1:]]:
    make(each)
defaults()
