"""Makes the folders beside it: small models of random weights, and Hugging Face's greedy tokens for them, with
the matrices rounded as weight_dtype rounds them.

    python make.py FOLDER 8 4        seeds of the two models; needs torch and transformers (5.23 made what is here)
"""
import json, os, sys, torch
from transformers import LlamaConfig, LlamaForCausalLM, GPT2Config, GPT2LMHeadModel
from safetensors.torch import save_file
to = sys.argv[1]
def rounded(w, how):
    if how == 'int8' and w.shape[-1] % 32 == 0:
        b = w.reshape(*w.shape[:-1], -1, 32)
        most = b.abs().amax(-1, keepdim=True)
        scale = (most / 127).to(torch.bfloat16)
        low = scale.float() * 127 < most
        scale = (scale.view(torch.int16) + low.to(torch.int16)).view(torch.bfloat16).float()
        q = torch.where(scale > 0, torch.round(b / scale), torch.zeros_like(b)).clamp(-127, 127)
        return (q * scale).reshape(w.shape)
    return w.to(torch.bfloat16).float()
def make(name, model, config, seed):
    folder = os.path.join(to, name)
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(seed)
    m = model(config).float().eval()
    state = m.state_dict()
    kept = {}
    for n, w in state.items():
        if 'lm_head' in n and config.tie_word_embeddings: continue
        with torch.no_grad(): w.normal_(0, 0.25) if w.dim() == 2 else w.add_(torch.randn_like(w) * 0.1)
        kept[n] = w.clone()
    save_file({n: w.contiguous() for n, w in kept.items()}, folder + '/model.safetensors')
    config.save_pretrained(folder)
    g = torch.Generator().manual_seed(3)
    prompts = [torch.randint(0, config.vocab_size, (n,), generator=g).tolist() for n in (1, 5, 17, 33)]
    for how in ('bfloat16', 'int8'):
        with torch.no_grad():
            for n, w in m.state_dict().items():
                if n in kept and kept[n].dim() == 2: w.copy_(rounded(kept[n], how))
        runs, gap = [], 9
        for p in prompts:
            ids, tokens, top5 = list(p), [], []
            for _ in range(20):
                with torch.no_grad(): l = m(torch.tensor([ids])).logits[0, -1]
                v, i = l.topk(6)
                gap = min(gap, float(v[0] - v[1]))
                top5.append([[int(a), round(float(b), 5)] for a, b in zip(i[:5], v[:5])])
                tokens.append(int(i[0])); ids.append(int(i[0]))
            runs.append({'prompt': p, 'tokens': tokens, 'top5': top5})
        json.dump({'model': type(m).__name__, 'weights': how, 'smallest_gap': gap, 'runs': runs}, open(folder + f'/generate_{how}.json', 'w'))
        print(name, how, gap, runs[2]['tokens'])
make('llama_stored', LlamaForCausalLM, LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=96, max_position_embeddings=128, tie_word_embeddings=True, rms_norm_eps=1e-6, bos_token_id=None, eos_token_id=None), int(sys.argv[2]))
make('gpt2_stored', GPT2LMHeadModel, GPT2Config(n_embd=64, n_head=4, n_layer=2, n_positions=96, vocab_size=96, n_inner=128, bos_token_id=None, eos_token_id=None), int(sys.argv[3]))
