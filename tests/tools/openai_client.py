"""A client of a program that serves, for openai.sh. Only Python's own library is needed.

    openai_client.py answers PORT FILE ATONCE   asks each request of FILE (a line of JSON: path, body, answer), plain and
                                                streamed, ATONCE at a time; the answers are the file's
    openai_client.py fields PORT FILE           asks for each member of FILE (fields.tsv): it is done, or refused by name, or
                                                changes nothing
    openai_client.py draws PORT                 drawn choices: the same by a seed, alone or not; their log-probabilities are
                                                those of the same tokens in an echo
    openai_client.py stops PORT                 whether texts of streams are those of plain answers, with stop texts that are
                                                parts of the answer, of one to four bytes a character
"""
import json
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

PORT = sys.argv[2]
WITHIN = 1e-4
failures = []


def post(path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def ask(path, body):
    status, text = post(path, body)
    if status != 200:
        raise ValueError(f"status {status}: {text}")
    return json.loads(text)


def add_logprobs(to, more):
    for key, value in (more or {}).items():
        to[key] = to.get(key, []) + value if isinstance(value, list) else value


def ask_streamed(path, body):
    """The answer that events make, and its number of events."""
    status, text = post(path, dict(body, stream=True, stream_options={"include_usage": True}))
    lines = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    assert status == 200 and lines[-1] == "[DONE]", (status, text)
    events = [json.loads(line) for line in lines[:-1]]
    assert all(e["usage"] is None for e in events[:-1]) and events[-1]["choices"] == [], events
    assert {e["object"] for e in events} == {"chat.completion.chunk" if "messages" in body else "text_completion"}
    choices = {}
    for event in events[:-1]:
        (one,) = event["choices"]
        choice = choices.setdefault(one["index"], dict(index=one["index"], logprobs=None, finish_reason=None))
        assert choice["finish_reason"] is None, "an event behind the last one"
        choice["finish_reason"] = one["finish_reason"]
        if "delta" in one:
            message = choice.setdefault("message", dict(refusal=None))
            message.update({k: message.get(k, "") + v for k, v in one["delta"].items()})
        else:
            choice["text"] = choice.get("text", "") + one["text"]
        if one["logprobs"] is not None:
            choice["logprobs"] = choice["logprobs"] or {}
            add_logprobs(choice["logprobs"], one["logprobs"])
    return dict(object="x", choices=[choices[i] for i in sorted(choices)], usage=events[-1]["usage"]), len(events)


def same(a, b, where=""):
    if isinstance(a, float) or isinstance(b, float):
        ok = isinstance(a, (int, float)) and isinstance(b, (int, float)) and abs(a - b) <= WITHIN
    elif isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(a.keys() | b.keys()):
            if key in a and key in b:
                same(a[key], b[key], f"{where}.{key}")
            else:
                raise ValueError(f"{where}: only one has {key!r}")
        return
    elif isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            raise ValueError(f"{where}: {len(a)} and {len(b)} elements: {a} {b}")
        for i, (x, y) in enumerate(zip(a, b)):
            same(x, y, f"{where}[{i}]")
        return
    else:
        ok = type(a) is type(b) and a == b
    if not ok:
        raise ValueError(f"{where}: {a!r}, not {b!r}")


def attempt(what, call, *arguments):
    try:
        call(*arguments)
    except Exception as error:  # reported with the others
        failures.append(f"{what}: {type(error).__name__}: {error}")


def check_answer(request):
    body, expected = request["body"], request["answer"]
    found = ask(request["path"], body)
    for key in ("id", "created", "model"):
        assert key in found, f"no {key}"
        found[key] = expected[key]
    same(found, expected)
    streamed, events = ask_streamed(request["path"], body)
    same(streamed["choices"], expected["choices"], "streamed")
    same(streamed["usage"], expected["usage"], "streamed usage")
    pieces = sum(c.get("text") != "" for c in expected["choices"]) * (1 if body.get("max_tokens", 9) < 5 else 2)
    assert events >= 1 + len(expected["choices"]) + pieces, f"only {events} events"


def answers(file, at_once):
    requests = [json.loads(line) for line in open(file)]
    with ThreadPoolExecutor(int(at_once)) as pool:
        for i, request in enumerate(requests):
            pool.submit(attempt, f"request {i} {json.dumps(request['body'])[:150]}", check_answer, request)
    print(f"{len(requests)} requests, plain and streamed, {at_once} at a time")


# What a member needs beside it.
BESIDE = {"top_logprobs": {"logprobs": True}, "stream_options": {"stream": True}}


def check_field(path, field, value, what):
    body = {"messages": [{"role": "user", "content": "Hi"}]} if path.startswith("chat") else {"prompt": "Hi"}
    body.update(max_tokens=3, model="model")
    if field == "max_completion_tokens":
        del body["max_tokens"]
    alone = ask(f"/v1/{path}", body)
    status, text = post(f"/v1/{path}", dict(body, **{field: value}, **BESIDE.get(field, {})))
    if what == "refused":
        assert status == 400 and f"'{field}'" in text and json.loads(text)["error"]["param"] == field, (status, text)
    else:
        assert status == 200, (status, text)
    if what == "the answer is the same":
        same(json.loads(text)["choices"], alone["choices"])


def fields(file):
    rows = [line.rstrip("\n").split("\t") for line in open(file)]
    for path, field, value, what in rows:
        attempt(f"{path} {field}", check_field, path, field, json.loads(value), what)
    print(f"{len(rows)} members:", ", ".join(f"{sum(r[3] == w for r in rows)} {w}" for w in sorted({r[3] for r in rows})))


def draws():
    how = dict(max_tokens=8, temperature=1.3, top_k=20, seed=5, logprobs=2, model="model")
    path = "/v1/completions"
    three = ask(path, dict(how, prompt=["Hello", "Again"], n=3))["choices"]
    same(three, ask(path, dict(how, prompt=["Hello", "Again"], n=3))["choices"])
    assert [c["index"] for c in three] == list(range(6)) and len({c["text"] for c in three}) == 6, three
    for i, prompt in enumerate(("Hello", "Again")):
        alone = ask(path, dict(how, prompt=prompt, n=2))["choices"]
        same([dict(c, index=0) for c in alone], [dict(c, index=0) for c in three[3 * i : 3 * i + 2]])
    streamed, _ = ask_streamed(path, dict(how, prompt=["Hello", "Again"], n=3))
    same(streamed["choices"], three, "streamed")
    # By the model's own logits, whatever they are drawn by: as an echo has them.
    ids = [105, 110, 32, 97]
    drawn = ask(path, dict(how, prompt=ids))["choices"][0]["logprobs"]
    known = [ord(t) if not t.startswith("bytes:") and ord(t) < 128 else None for t in drawn["tokens"]]
    made = [int(t[8:], 16) if k is None else k for t, k in zip(drawn["tokens"], known)]
    echo = ask(path, dict(prompt=ids + made, max_tokens=0, echo=True, logprobs=2))["choices"][0]["logprobs"]
    for key in ("tokens", "token_logprobs", "top_logprobs"):
        same(echo[key][len(ids) :], drawn[key], key)
    print("6 draws, and an echo of one")


def stops():
    body = dict(prompt="Hello", max_tokens=40, temperature=1.5, model="model")
    count = 0
    for seed in range(2):
        text = ask("/v1/completions", dict(body, seed=seed))["choices"][0]["text"]
        assert text, "an answer without text"
        for first in range(0, len(text) - 1, 7):
            for length in (1, 3):
                asked = dict(body, seed=seed, stop=[text[first : first + length], "nowhere"])
                plain = ask("/v1/completions", asked)["choices"][0]
                streamed, _ = ask_streamed("/v1/completions", asked)
                same(streamed["choices"][0], plain, f"stop {asked['stop'][0]!r} of {text!r}")
                assert plain["finish_reason"] == "stop" and asked["stop"][0] not in plain["text"] and text.startswith(plain["text"])
                count += 1
    print(f"{count} stop texts")


attempt(sys.argv[1], globals()[sys.argv[1]], *sys.argv[3:])
for failure in failures[:10]:
    print(failure)
sys.exit(bool(failures))
