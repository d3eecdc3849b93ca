"""Makes the files of this folder: python make.py. A tokenizer with the special tokens of several chat templates, conversations, and
for each template what transformers makes of them: ids, and which of them are learned. By {% generation %} it is transformers' own mask of
the assistant's tokens; else a token is learned that has a character from behind the generation's prompt, or what the text has of it, to the end of the turn's mark."""
import json, os
from transformers import PreTrainedTokenizerFast

here = os.path.dirname(os.path.abspath(__file__))
GENERATION = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>"
              "{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}\n{% endfor %}"
              "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
TURN_ENDS = {"hermes": "<|im_end|>", "llama31": "<|eot_id|>", "mistral_v3": "</s>", "gemma3": "<end_of_turn>", 
             "deepseek_r1": "<｜end▁of▁sentence｜>", "generation": "<|im_end|>"}
SPECIAL = ["<|im_start|>", "<|im_end|>", "<s>", "</s>", "[INST]", "[/INST]", "<start_of_turn>", "<end_of_turn>", "<｜User｜>", "<｜Assistant｜>",
           "<｜end▁of▁sentence｜>", "<|start_of_role|>", "<|end_of_role|>", "<pad>"]
def user(text): return {"role": "user", "content": text}
def answer(text): return {"role": "assistant", "content": text}
def system(text): return {"role": "system", "content": text}
CONVERSATIONS = [
    [user("Hello?"), answer("Hi there!")],
    [user("Hello?"), answer("Hi there!"), user("What is two and two?"), answer("Four.\n\nIt is four.")],
    [system("Be short."), user("Name a colour"), answer(" Red ")],
    [user("Hello?"), answer("")],
    [user("A"), answer("東京 is a city"), user("B\n"), answer("C"), user("D"), answer("E e e e e e e e e e e e e e e e e e e e e e e e e")],
    [user("nobody answers")],
]
rows = {row["name"]: row for row in json.load(open(os.path.join(here, "../chat/templates.json")))}
t = PreTrainedTokenizerFast(tokenizer_file=os.path.join(here, "../tokenizer/llama3/tokenizer.json"))
t.add_special_tokens({"additional_special_tokens": SPECIAL})
t.backend_tokenizer.save(os.path.join(here, "tokenizer.json"), pretty=False)

def learned(encoding, spans):
    return [int(any(b < end and e > begin for begin, end in spans)) for b, e in encoding.offsets]

with open(os.path.join(here, "conversations.jsonl"), "w") as f:
    for messages in CONVERSATIONS:
        f.write(json.dumps({"messages": messages, "date_string": "DATE"}, ensure_ascii=False) + "\n")
for name, end in TURN_ENDS.items():
    template = GENERATION if name == "generation" else rows[name]["template"]
    t.bos_token, t.eos_token, t.pad_token = "<s>", end, "<pad>"
    os.makedirs(os.path.join(here, name), exist_ok=True)
    with open(os.path.join(here, name, "tokenizer_config.json"), "w") as f:
        json.dump({"chat_template": template, "bos_token": "<s>", "eos_token": end, "pad_token": "<pad>"}, f, ensure_ascii=False)
    with open(os.path.join(here, name, "expected.jsonl"), "w") as f:
        for messages in CONVERSATIONS:
            def render(some, prompt): return t.apply_chat_template(some, chat_template=template, tokenize=False, add_generation_prompt=prompt, date_string="DATE")
            try:
                text = render(messages, False)
            except Exception:
                f.write("null\n")
                continue
            encoding = t.backend_tokenizer.encode(text, add_special_tokens=False)
            spans = []
            for i, m in enumerate(messages):
                if m["role"] != "assistant": continue
                before = render(messages[:i], True)
                begin = len(os.path.commonprefix([text, before]))
                without = render(messages[:i], False) if i else ""
                if begin < len(before) and not (text.startswith(without) and begin >= len(without)):
                    spans = None # refused
                    break
                stop = text.find(end, begin)
                spans.append((begin, stop + len(end) if stop >= 0 else len(text)))
            if spans is None:
                f.write("null\n")
                continue
            mask = learned(encoding, spans)
            if name == "generation":
                made = t.apply_chat_template(messages, chat_template=template, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
                assert list(made["input_ids"]) == encoding.ids
                mask = list(made["assistant_masks"])
            f.write(json.dumps({"ids": encoding.ids, "learned": mask}) + "\n")
print(len(t))
