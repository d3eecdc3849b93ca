"""Makes the files beside it: requests of OpenAI's client, and the answers that a model of Hugging Face gives to them.

    python make.py        needs torch, transformers, tokenizers and openai (2.15, 5.24, 0.23.3 and 3.57 made what is here)

The model is ../generate/llama, and tokenizer.json has a token for each byte and two special ones. requests.jsonl has
a request a line: its path, the body as the client sends it, and the answer. The client has read each answer, strictly,
and knows all of its members. fields.tsv has every member of the client's types of requests: a value that asks for
something, and whether the server does it, refuses it, or need not (the answer is the same with it).
"""
import codecs
import json
import os
import typing

import httpx2 as httpx
import openai
import tokenizers
import torch
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = LlamaForCausalLM.from_pretrained(os.path.join(HERE, "../generate/llama"), attn_implementation="eager").eval()
SPECIAL = {"<s>": 254, "<end>": 255}
LETTERS = {}  # a byte's letter
for byte in range(256):
    LETTERS[byte] = chr(byte) if 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174 else None
for i, byte in enumerate(b for b in range(256) if LETTERS[b] is None):
    LETTERS[byte] = chr(256 + i)
CONTEXT = 80


def make_tokenizer():
    t = Tokenizer(models.BPE(vocab={LETTERS[b]: b for b in range(254)}, merges=[]))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    assert all(t.token_to_id(s) == i for s, i in SPECIAL.items())
    t.save(os.path.join(HERE, "tokenizer.json"), pretty=False)
    return t


TOKENIZER = make_tokenizer()


def scores(ids):
    with torch.no_grad():
        return torch.log_softmax(MODEL(torch.tensor([ids])).logits[0].double(), -1)


def bytes_of(token):
    return next(s for s, i in SPECIAL.items() if i == token).encode() if token in SPECIAL.values() else bytes([token])


def name(token, mark):
    raw = bytes_of(token)
    try:
        text = raw.decode()
        return text if "\0" not in text else mark + "\\x00"
    except UnicodeDecodeError:
        return mark + "".join(f"\\x{b:02x}" for b in raw)


def offset(ids):
    """The character of the text in which each token begins."""
    at, so_far, decoder = [], 0, codecs.getincrementaldecoder("utf-8")("replace")
    for token in ids:
        raw = b"" if token in SPECIAL.values() else bytes_of(token)
        begun, text = decoder.getstate()[0], decoder.decode(raw)
        at.append(so_far + (begun != b"" and text.startswith("\ufffd")))
        so_far += len(text)
    return at


LEAST_GAP = [1e9]


def rounded(x):
    return round(float(x), 6)


def best_of(row, top):
    best = torch.topk(row, top + 1)
    gaps = (best.values[:-1] - best.values[1:]).min().item() if top > 0 else 1e9
    LEAST_GAP[0] = min(LEAST_GAP[0], gaps)
    return [(i.item(), rounded(v)) for i, v in zip(best.indices[:top], best.values[:top])]


def greedy(prompt, most, stop_tokens, stops):
    ids = list(prompt)
    for _ in range(min(most, CONTEXT - len(prompt))):
        row = scores(ids)[-1]
        best = torch.topk(row, 2)
        LEAST_GAP[0] = min(LEAST_GAP[0], (best.values[0] - best.values[1]).item())
        ids.append(best.indices[0].item())
        text = TOKENIZER.decode(ids[len(prompt):])
        if ids[-1] in stop_tokens or any(s in text for s in stops):
            return ids, "stop"
    return ids, "length"


def completion(prompt, index, body):
    ids = TOKENIZER.encode(prompt).ids if isinstance(prompt, str) else list(prompt)
    stops = body.get("stop") or []
    all_ids, why = greedy(ids, body.get("max_tokens", 16), body.get("stop_token_ids", []), stops)
    kept = all_ids[:-1] if all_ids[-1] in body.get("stop_token_ids", []) and why == "stop" else all_ids
    text = TOKENIZER.decode(kept[len(ids):])
    cuts = [text.index(s) for s in stops if s in text]
    text = text[: min(cuts)] if cuts else text
    first = 0 if body.get("echo") else len(ids)
    if body.get("echo"):
        text = TOKENIZER.decode(ids) + text
    choice = dict(text=text, index=index, logprobs=None, finish_reason=why)
    if body.get("logprobs") is not None:
        rows, tokens = scores(all_ids), all_ids[first:]
        own, top = [], []
        for at in range(first, len(all_ids)):
            if at == 0:
                own.append(None)
                top.append(None)
                continue
            own.append(rounded(rows[at - 1][all_ids[at]]))
            top.append({name(i, "bytes:"): v for i, v in best_of(rows[at - 1], body["logprobs"])})
            top[-1].setdefault(name(all_ids[at], "bytes:"), own[-1])
        choice["logprobs"] = dict(tokens=[name(i, "bytes:") for i in tokens], token_logprobs=own, top_logprobs=top,
                                  text_offset=offset(tokens))
    return choice, len(ids), len(all_ids) - len(ids)


def completions(body):
    prompt = body["prompt"]
    prompts = prompt if isinstance(prompt, list) and not isinstance(prompt[0], int) else [prompt]
    choices, asked, made = [], 0, 0
    for p in prompts:
        for k in range(body.get("n") or 1):
            choice, length, count = completion(p, len(choices), body)
            asked += length if k == 0 else 0
            made += count
            choices.append(choice)
    return choices, asked, made


def chat(body):
    text = "".join(f"<s>{m['role']}\n{m['content']}<end>\n" for m in body["messages"]) + "<s>assistant\n"
    ids = TOKENIZER.encode(text).ids
    stops = body.get("stop") or []
    all_ids, why = greedy(ids, body["max_completion_tokens"], [], stops)
    made = all_ids[len(ids):]
    answer = TOKENIZER.decode(made)
    cuts = [answer.index(s) for s in stops if s in answer]
    answer = answer[: min(cuts)] if cuts else answer
    choices = []
    for index in range(body.get("n") or 1):
        choice = dict(index=index, message=dict(role="assistant", content=answer, refusal=None), logprobs=None,
                      finish_reason=why)
        if body.get("logprobs"):
            rows, content = scores(all_ids), []
            for k, token in enumerate(made):
                if cuts and len(TOKENIZER.decode(made[:k])) >= len(answer):
                    break
                row = rows[len(ids) + k - 1]
                content.append(dict(token=name(token, ""), logprob=rounded(row[token]), bytes=list(bytes_of(token)),
                                    top_logprobs=[dict(token=name(i, ""), logprob=v, bytes=list(bytes_of(i)))
                                                  for i, v in best_of(row, body.get("top_logprobs") or 0)]))
            choice["logprobs"] = dict(content=content, refusal=None)
        choices.append(choice)
    return choices, len(ids), len(made) * len(choices)


REQUESTS = []


def serve(request):
    body, path = json.loads(request.content), request.url.path
    is_chat = path.endswith("chat/completions")
    choices, asked, made = chat(body) if is_chat else completions(body)
    answer = dict(id="x", object="chat.completion" if is_chat else "text_completion", created=0, model=body["model"],
                  choices=choices, usage=dict(prompt_tokens=asked, completion_tokens=made, total_tokens=asked + made))
    REQUESTS.append(dict(path=path, body=body, answer=answer))
    return httpx.Response(200, json=answer)


def knows(model):
    """The client's type has all members of the answer."""
    assert not model.model_extra, model.model_extra
    for value in dict(model).values():
        for one in value if isinstance(value, list) else [value]:
            if hasattr(one, "model_extra"):
                knows(one)


client = openai.OpenAI(api_key="secret", base_url="http://server/v1",
                       http_client=httpx.Client(transport=httpx.MockTransport(serve)))


def ask(call, **body):
    answer = call(model="model", **body)
    knows(answer)
    written = json.loads(json.dumps(REQUESTS[-1]["answer"]))
    for choice in written["choices"]:
        if body.get("echo") and choice["logprobs"]:  # a text's first token has none: null, which the types lack
            choice["logprobs"].update(token_logprobs=[], top_logprobs=[])
    type(answer).model_validate(written, strict=True)


complete, talk = client.completions.create, client.chat.completions.create
tokens = [72, 101, 108, 108, 111, 240, 159]
complete_text = "Ein Satz über drei Zeilen: äöü 🙂."
ask(complete, prompt="Hello", max_tokens=12, logprobs=3)
ask(complete, prompt="Hello", max_tokens=5, logprobs=0, temperature=0)
ask(complete, prompt=complete_text, max_tokens=6, logprobs=5, echo=True)
ask(complete, prompt=complete_text, max_tokens=0, logprobs=1, echo=True, temperature=0, seed=1234)  # lm-eval-harness
ask(complete, prompt=[tokens, tokens[:3], [254] + tokens, list(range(20, 50)), [33]], max_tokens=1, logprobs=1, echo=True, seed=1234)
ask(complete, prompt=list(range(30, 30 + CONTEXT)), max_tokens=0, logprobs=1, echo=True)
ask(complete, prompt="Hello", max_tokens=0)
ask(complete, prompt="Hello", max_tokens=3, echo=True)
ask(complete, prompt=["Hello", "Again", "and again, over more than one chunk"], max_tokens=4, n=2, best_of=2)
ask(complete, prompt=["Hello"], max_tokens=4)
ask(complete, prompt=tokens, max_tokens=7)
said = REQUESTS[0]["answer"]["choices"][0]["logprobs"]
inner = next(t for i, t in enumerate(said["tokens"]) if i > 3 and not t.startswith("bytes"))
ask(complete, prompt="Hello", max_tokens=12, logprobs=2, stop=[inner])
ask(complete, prompt="Hello", max_tokens=12, logprobs=2, echo=True, stop=[inner, "l"])
last = max(i for i, t in enumerate(said["tokens"]) if t not in said["tokens"][:i])
complete_ids = greedy(TOKENIZER.encode("Hello").ids, 12, [], [])[0][5:]
ask(complete, prompt="Hello", max_tokens=12, logprobs=2, extra_body={"stop_token_ids": [complete_ids[last]]})
messages = [dict(role="system", content="Short."), dict(role="user", content="Hi")]
ask(talk, messages=messages, max_completion_tokens=10, logprobs=True, top_logprobs=4)
ask(talk, messages=messages, max_completion_tokens=6, logprobs=True)
ask(talk, messages=messages[1:], max_completion_tokens=6, n=3, logprobs=True, top_logprobs=1)
ask(talk, messages=messages[1:], max_completion_tokens=6)
said = REQUESTS[-4]["answer"]["choices"][0]["logprobs"]["content"]
inner = next(t["token"] for i, t in enumerate(said) if i > 2 and not t["token"].startswith("\\x"))
ask(talk, messages=messages, max_completion_tokens=10, logprobs=True, top_logprobs=2, stop=[inner])
assert LEAST_GAP[0] > 1e-4, LEAST_GAP
with open(os.path.join(HERE, "requests.jsonl"), "w") as file:
    for request in REQUESTS:
        file.write(json.dumps(request, separators=(",", ":"), ensure_ascii=False) + "\n")
print(len(REQUESTS), "requests; smallest gap", LEAST_GAP[0], "; longest", max(len(json.dumps(r)) for r in REQUESTS))

# ---- the members of requests --------------------------------------------------------------------

DONE, REFUSED, UNUSED = "done", "refused", "the answer is the same"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
COMMON = {
    "model": ("model", UNUSED),
    "frequency_penalty": (0.5, REFUSED), "presence_penalty": (0.5, REFUSED), "logit_bias": ({"50": 10}, REFUSED),
    "max_tokens": (3, DONE), "n": (2, DONE), "seed": (7, DONE), "stop": (["x", "y"], DONE),
    "stream": (True, DONE), "stream_options": ({"include_usage": True}, DONE),
    "temperature": (0.5, DONE), "top_p": (0.5, DONE), "user": ("me", UNUSED),
}
FIELDS = {
    "completions": dict(COMMON, **{
        "prompt": ("Hi", DONE), "best_of": (2, REFUSED), "echo": (True, DONE), "logprobs": (2, DONE),
        "suffix": ("end", REFUSED),
    }),
    "chat/completions": dict(COMMON, **{
        "messages": ([{"role": "user", "content": "Hi"}], DONE),
        "audio": ({"format": "wav", "voice": "alloy"}, REFUSED), "function_call": ("auto", REFUSED),
        "functions": ([{"name": "f"}], REFUSED), "logprobs": (True, DONE), "max_completion_tokens": (3, DONE),
        "metadata": ({"a": "b"}, UNUSED), "modalities": (["text", "audio"], REFUSED),
        "moderation": ({"model": "omni-moderation-latest"}, REFUSED), "parallel_tool_calls": (True, UNUSED),
        "prediction": ({"type": "content", "content": "a"}, UNUSED), "prompt_cache_key": ("a", UNUSED),
        "prompt_cache_options": ({"mode": "explicit"}, UNUSED), "prompt_cache_retention": ("24h", UNUSED),
        "reasoning_effort": ("low", DONE), "response_format": ({"type": "json_object"}, REFUSED),
        "safety_identifier": ("a", UNUSED), "service_tier": ("flex", UNUSED), "store": (True, UNUSED),
        "tool_choice": ("auto", REFUSED), "tools": ([TOOL], REFUSED), "top_logprobs": (2, DONE),
        "verbosity": ("low", REFUSED), "web_search_options": ({}, REFUSED),
    }),
}
TYPES = {"completions": completion_create_params.CompletionCreateParamsStreaming,
         "chat/completions": chat_create_params.CompletionCreateParamsStreaming}
with open(os.path.join(HERE, "fields.tsv"), "w") as file:
    for path, of in TYPES.items():
        there = set(typing.get_type_hints(of))
        assert there == set(FIELDS[path]), (there ^ set(FIELDS[path]))
        for field in sorted(there):
            value, what = FIELDS[path][field]
            file.write(f"{path}\t{field}\t{json.dumps(value)}\t{what}\n")
