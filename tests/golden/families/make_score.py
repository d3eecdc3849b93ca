"""Makes score.jsonl: python make_score.py. Texts of tokens, and the logarithm of each token's probability by transformers' model of
olmo2/."""
import json, os, torch
from transformers import AutoModelForCausalLM
here = os.path.dirname(os.path.abspath(__file__))
model = AutoModelForCausalLM.from_pretrained(os.path.join(here, "olmo2")).float().eval()
torch.manual_seed(0)
with open(os.path.join(here, "score.jsonl"), "w") as f:
    for length in (2, 9, 24):
        ids = torch.randint(0, model.config.vocab_size, (1, length))
        with torch.no_grad():
            logp = torch.log_softmax(model(ids).logits[0].double(), -1)
        each = [logp[i, ids[0, i + 1]].item() for i in range(length - 1)]
        greedy = all(logp[i].argmax().item() == ids[0, i + 1].item() for i in range(length - 1))
        f.write(json.dumps({"ids": ids[0].tolist(), "log_probabilities": [None] + each, "log_likelihood": sum(each), "is_greedy": greedy}) + "\n")
