"""Small models of Hugging Face transformers: config.json, weights, data and the losses of 20 steps of AdamW.
Arguments: only these models."""
import json, os, sys
import torch
import transformers as hf
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 20
NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
BERT = hf.BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=96,
                     max_position_embeddings=16, **NO_DROPOUT)
QWEN = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64,
            vocab_size=96, max_position_embeddings=32)
FALCON = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=96, ffn_hidden_size=64,
              max_position_embeddings=32, bos_token_id=0, eos_token_id=0)
VIT = hf.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=8,
                   patch_size=4, num_labels=5, **NO_DROPOUT)
MODELS = {
    "gpt2": (hf.GPT2LMHeadModel, hf.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=16, vocab_size=96,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)),
    "llama": (hf.LlamaForCausalLM, hf.LlamaConfig(pad_token_id=5, rms_norm_eps=1e-6, **QWEN)),
    "qwen2": (hf.Qwen2ForCausalLM, hf.Qwen2Config(tie_word_embeddings=True, **QWEN)),
    "qwen2_window": (hf.Qwen2ForCausalLM, hf.Qwen2Config(use_sliding_window=True, sliding_window=5, max_window_layers=1,
        **QWEN)),
    "qwen3": (hf.Qwen3ForCausalLM, hf.Qwen3Config(head_dim=16, **QWEN)),
    "mistral": (hf.MistralForCausalLM, hf.MistralConfig(sliding_window=5, head_dim=16, **QWEN)),
    "gemma": (hf.GemmaForCausalLM, hf.GemmaConfig(head_dim=16, **QWEN)),
    "gemma2": (hf.Gemma2ForCausalLM, hf.Gemma2Config(head_dim=16, query_pre_attn_scalar=24, sliding_window=5,
        attn_logit_softcapping=2.0, final_logit_softcapping=1.5, **QWEN)),
    "phi3": (hf.Phi3ForCausalLM, hf.Phi3Config(pad_token_id=-3, bos_token_id=0, eos_token_id=0, **QWEN)),
    "phi3_long": (hf.Phi3ForCausalLM, hf.Phi3Config(pad_token_id=-3, bos_token_id=0, eos_token_id=0, original_max_position_embeddings=8,
        rope_parameters={"rope_type": "longrope", "short_factor": [1.0, 1.0, 1.5, 2.0], "long_factor": [1.0, 2.5, 3.0, 4.0]}, **QWEN)),
    "llama_dynamic": (hf.LlamaForCausalLM, hf.LlamaConfig(rms_norm_eps=1e-6, rope_parameters={"rope_type": "dynamic", "factor": 4.0},
        **{**QWEN, "max_position_embeddings": 8})),
    "gpt_neox": (hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, vocab_size=96, max_position_embeddings=32, rotary_pct=0.5)),
    "falcon": (hf.FalconForCausalLM, hf.FalconConfig(multi_query=True, **FALCON)),
    "falcon_groups": (hf.FalconForCausalLM, hf.FalconConfig(new_decoder_architecture=True, num_kv_heads=2, **FALCON)),
    "bert": (hf.BertForMaskedLM, BERT),
    "bert_classes": (hf.BertForSequenceClassification, hf.BertConfig(**{**BERT.to_dict(), "num_labels": 3})),
    "vit": (hf.ViTForImageClassification, VIT),
    "resnet": (hf.ResNetForImageClassification, hf.ResNetConfig(embedding_size=8, hidden_sizes=[16, 32], depths=[1, 2],
        layer_type="bottleneck", num_labels=5)),
    "resnet_basic": (hf.ResNetForImageClassification, hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16],
        depths=[1, 2], layer_type="basic", num_labels=5)),
}
BATCH, SEQ = 4, 16

def data(name, config, generator):
    draw = lambda high, *shape: torch.randint(0, high, shape, generator=generator)
    if name.startswith(("llama", "gpt", "qwen", "phi", "falcon", "mistral", "gemma")):
        return {"tokens": draw(96, STEPS * BATCH * SEQ + 1)}
    if name.startswith("bert"):
        mask = torch.ones(BATCH, SEQ, dtype=torch.int64)
        mask[1, 10:] = 0
        mask[3, 13:] = 0
        ids = draw(96, BATCH, SEQ)
        ids[:, 7] = ids[2, 2] = 0  # BERT's padding, whose row learns nothing from the embedding
        labels = draw(96, BATCH, SEQ).masked_fill(torch.rand(BATCH, SEQ, generator=generator) > 0.4, -100)
        return {"input_ids": ids, "token_type_ids": draw(2, BATCH, SEQ), "attention_mask": mask,
                "labels": draw(3, BATCH) if name == "bert_classes" else labels.masked_fill(mask == 0, -100)}
    size = 8 if name == "vit" else 32
    return {"pixel_values": torch.randn(BATCH, 3, size, size, generator=generator), "labels": draw(5, BATCH)}

for name in sys.argv[1:] or MODELS:
    model_class, config = MODELS[name]
    torch.manual_seed(7)
    generator = torch.Generator().manual_seed(11)
    config._attn_implementation = "eager"
    model = model_class(config).train()
    for key, parameter in model.named_parameters():  # no bias or norm begins as 0 or 1
        with torch.no_grad():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    model.save_pretrained(folder)
    for extra in ("generation_config.json",):
        if os.path.exists(os.path.join(folder, extra)): os.remove(os.path.join(folder, extra))
    batch = data(name, config, generator)
    # Two of ResNet's gradients are nothing but rounding (5e-17 in float64, of a bias before a BatchNorm), and AdamW
    # makes a whole step of lr of their sign. At 1e-2 PyTorch's float32 is up to 4e-2 from its float64.
    lr = 1e-3 if name.startswith("resnet") else 1e-2
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.1)
    losses = []
    for step in range(STEPS):
        if "tokens" in batch:
            at = step * BATCH * SEQ
            ids = batch["tokens"][at:at + BATCH * SEQ + 1]
            logits = model(ids[:-1].view(BATCH, SEQ)).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[1:])
        else:
            loss = model(**batch).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if "tokens" in batch:
        batch["tokens"].numpy().astype("<u2").tofile(os.path.join(folder, "tokens.u16"))
    else:
        save_file(batch, os.path.join(folder, "batch.safetensors"))
    json.dump(losses, open(os.path.join(folder, "losses.json"), "w"))
    print(name, losses[0], losses[-1], sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder)))
