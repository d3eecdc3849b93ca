#!/usr/bin/env python3
"""Looks at pages of tpgen --report in a browser, as a person would: look_at_report.py FOLDER...

Each folder has plan.json and report.html. The browser is Debian's chromium without a window, driven by chromedriver over
WebDriver's HTTP. A page must load without an error and without a request; its numbers must be those of plan.json; sorting,
filtering, folding and zooming must work; nothing that a name says may run. SHOTS=FOLDER keeps a picture of each page."""
import base64
import json
import os
import re
import subprocess
import sys
import time
import urllib.request

PORT = 17000 + os.getpid() % 2000


def call(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=120) as reply:
        return json.load(reply)["value"]


class Browser:
    def __init__(self):
        self.driver = subprocess.Popen(["chromedriver", f"--port={PORT}", "--silent"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        options = {"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1300,2400"]}
        for _ in range(100):
            try:
                made = call("POST", "/session", {"capabilities": {"alwaysMatch": {
                    "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}}})
                break
            except OSError:
                time.sleep(0.2)
        else:
            raise SystemExit("look_at_report.py: chromedriver does not answer")
        self.path = f"/session/{made['sessionId']}"

    def open(self, file):
        call("POST", self.path + "/url", {"url": "file://" + os.path.abspath(file)})

    def run(self, script, *arguments):
        return call("POST", self.path + "/execute/sync", {"script": script, "args": list(arguments)})

    def log(self, kind):
        return call("POST", self.path + "/se/log", {"type": kind})

    def shot(self, file):
        with open(file, "wb") as f:
            f.write(base64.b64decode(call("GET", self.path + "/screenshot")))

    def close(self):
        try:
            call("DELETE", self.path)
        finally:
            self.driver.terminate()


failures = 0


def check(holds, what):
    global failures
    if not holds:
        failures += 1
        print(f"look_at_report.py: {what}")


def bytes_text(n):
    if n < 10240:
        return f"{n:,} B"
    unit, one = 0, 1024
    while unit < 3 and n // one >= 1024:
        unit, one = unit + 1, one * 1024
    tenths = n // one * 10 + -(-(n % one * 10) // one)
    return f"{tenths // 10}.{tenths % 10} {['KiB', 'MiB', 'GiB', 'TiB'][unit]}"


def seconds_of(text):
    number, unit = text.split()
    return float(number) * {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit]


ROWS = """const table = document.querySelector(`table[aria-label="${arguments[0]}"]`);
return table ? [...table.tBodies[0].rows].map((r) => [...r.cells].map((c) => c.textContent)) : null;"""
HEAD = """const heads = [...document.querySelectorAll(`table[aria-label="${arguments[0]}"] thead button`)];
heads.find((b) => b.textContent === arguments[1]).click();"""
ORDER = """const heads = [...document.querySelectorAll(`table[aria-label="${arguments[0]}"] thead th`)];
return heads.find((h) => h.textContent === arguments[1]).getAttribute("aria-sort");"""
FILTER = """const box = document.querySelector(`input[aria-label="${arguments[0]}"]`);
box.value = arguments[1]; box.dispatchEvent(new Event("input"));"""


def near(a, b, within=2e-3):
    return abs(a - b) <= within * max(abs(a), abs(b)) + 1e-12


def check_step(b, name, plan):
    step = plan.get("simulated_step")
    if not step:
        check("no step is simulated" in b.run("return document.getElementById('step').textContent"), f"{name}: says no word of the missing device")
        return
    parts = b.run("return [...document.querySelectorAll('#step ul.key li')].map((e) => e.textContent)")
    seconds = sum(seconds_of(re.search(r": ([\d.]+ \w+),", part)[1]) for part in parts if not re.search(r": 0, ", part))
    check(near(seconds, step["seconds"], 5e-3), f"{name}: the bar's parts are {seconds} s, the step {step['seconds']}")
    facts = b.run("return Object.fromEntries([...document.querySelectorAll('#facts div')].map((d) => [d.children[0].textContent, d.children[1].textContent]))")
    check(near(seconds_of(facts["Simulated step"]), step["seconds"]), f"{name}: the head's step is {facts['Simulated step']}")
    if "mfu" in step:
        check(facts["MFU"] == f"{100 * step['mfu']:.1f} %", f"{name}: the head's MFU is {facts['MFU']}")
    check("The most of the step is" in b.run("return document.getElementById('bottleneck').textContent"), f"{name}: no bottleneck is named")


def check_transfers(b, name, plan):
    collectives = plan.get("collectives", [])
    if not collectives:
        return
    rows = b.run(ROWS, "transfers")
    check(len(rows) == len(collectives), f"{name}: {len(rows)} transfers for {len(collectives)}")
    shown = sorted((r[0], r[2], r[4], r[5], r[6]) for r in rows)
    there = sorted((c["kind"], c["phase"], f"{c['times']:,}", bytes_text(c["sent"]), bytes_text(c["sent"] * c["times"])) for c in collectives)
    check(shown == there, f"{name}: other transfers than plan.json's: {[x for x in shown if x not in there][:2]}")
    sent = [c["sent"] * c["times"] for c in collectives]
    orders = set()
    for _ in range(2):
        b.run(HEAD, "transfers", "A rank sends, a step")
        order = b.run(ORDER, "transfers", "A rank sends, a step")
        orders.add(order)
        first = b.run(ROWS, "transfers")[0][6]
        check(first == bytes_text((max if order == "descending" else min)(sent)), f"{name}: sorted, {order}, the first row sends {first}")
    check(len(orders) == 2, f"{name}: a table is sorted one way only")
    if len(collectives) > 8:
        phase = collectives[-1]["phase"]
        b.run(FILTER, "Filter transfers", phase)
        kept = b.run(ROWS, "transfers")
        of_phase = sum(phase in " ".join(r).lower() for r in rows)
        check(len(kept) == of_phase > 0 and all(phase in " ".join(r).lower() for r in kept), f"{name}: the filter leaves {len(kept)} rows of {of_phase}")
        b.run(FILTER, "Filter transfers", "")


def check_modules(b, name, plan):
    folded = len(b.run(ROWS, "Modules"))
    b.run("[...document.querySelectorAll('#modules button.plain')].find((e) => e.textContent === 'Unfold all').click()")
    rows = b.run(ROWS, "Modules")
    here = [p for p in plan.get("parameters", []) if any(0 not in l["shape"] for l in p["local"])]
    shapes = sorted(f"{p['type']} [{', '.join(map(str, p['shape']))}]" for p in here)
    check(sorted(r[2] for r in rows if r[2]) == shapes, f"{name}: other parameters than plan.json's {len(shapes)}")
    check(len(rows) > folded or not any("." in p["name"] for p in here), f"{name}: unfolding shows no more rows")
    b.run("document.querySelector('#modules button.fold').click()")
    check(len(b.run(ROWS, "Modules")) == 1, f"{name}: the first row does not fold the rest")
    b.run("document.querySelector('#modules button.fold').click()")


def check_timeline(b, name, id, runs):
    count = b.run(f"return document.querySelectorAll('#{id} g.bar-of').length")
    check(0 < count <= runs, f"{name}: {count} bars for {runs} runs")
    axis = b.run(f"return document.querySelector('#{id} g.axis').textContent")
    b.run(f"""const svg = document.querySelector('#{id} svg.timeline'); svg.focus();
for (let i = 0; i < 6; i++) svg.dispatchEvent(new KeyboardEvent("keydown", {{key: "+", bubbles: true}}));""")
    check(b.run(f"return document.querySelector('#{id} g.axis').textContent") != axis, f"{name}: the timeline does not zoom")
    b.run(f"document.querySelector('#{id} svg.timeline').dispatchEvent(new KeyboardEvent('keydown', {{key: '0', bubbles: true}}))")
    check(b.run(f"return document.querySelector('#{id} g.axis').textContent") == axis, f"{name}: the timeline does not zoom back")


def check_memory(b, name, plan):
    m = plan["memory_of_rank"]
    text = b.run("return document.getElementById('memory').textContent")
    check(f"In all {bytes_text(m['total'] + m.get('libraries', 0))}" in text, f"{name}: another memory than {m['total']}")
    largest = plan["memory_over_time"]["at_peak"]
    check([r[3] for r in b.run(ROWS, "largest values")] == [bytes_text(v["bytes"]) for v in largest], f"{name}: other values at the peak")


def check_search(b, name, search):
    rows = b.run(ROWS, "candidates")
    check(len(rows) == len(search["candidates"]), f"{name}: {len(rows)} candidates for {len(search['candidates'])}")
    dots = b.run("return document.querySelectorAll('g.dot').length")
    check(dots == sum(1 for c in search["candidates"] if c.get("seconds") and c.get("bytes")), f"{name}: {dots} points")


def look(b, folder):
    name = os.path.basename(folder.rstrip("/"))
    page = os.path.join(folder, os.environ.get("PAGE", "report.html"))
    with open(os.path.join(folder, "plan.json")) as f:
        plan = json.load(f)
    b.log("browser"), b.log("performance")
    b.open(page)
    check(b.run("return document.body.dataset.drawn") == "yes", f"{name}: the page was not drawn to its end")
    errors = [e["message"] for e in b.log("browser") if e["level"] in ("SEVERE", "WARNING")]
    check(not errors, f"{name}: {errors[:2]}")
    asked = set()
    for e in b.log("performance"):
        message = json.loads(e["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.add(message["params"]["request"]["url"])
    asked = {url for url in asked if not url.startswith(("file://", "data:"))}
    check(not asked, f"{name}: the page asks for {asked}")
    check(not b.run("return window.hacked"), f"{name}: a name was run")
    unnamed = b.run("return [...document.querySelectorAll('svg[role=img]')].filter((s) => !s.getAttribute('aria-label')).length")
    check(unnamed == 0, f"{name}: {unnamed} pictures without a text")
    check_step(b, name, plan)
    if "pipeline" in plan:
        stages = plan["pipeline"]["stages"]
        check([r[7] for r in b.run(ROWS, "stages")] == [bytes_text(s["memory_of_rank"]) for s in stages], f"{name}: the stages' memory")
        if "actions" in plan:
            check_timeline(b, name, "pipeline", len(plan["actions"]))
        first = os.path.join(folder, stages[0]["plan"])
        if not os.path.exists(first):
            return
        with open(first) as f:
            part = json.load(f)
    else:
        part = plan
    check_transfers(b, name, part)
    check_modules(b, name, part)
    if "timeline" in part:
        check_timeline(b, name, "timeline", len(part["timeline"]["runs"]))
    check_memory(b, name, part)
    found = os.path.join(folder, "search.json")
    if os.path.exists(found):
        with open(found) as f:
            check_search(b, name, json.load(f))
    if os.environ.get("SHOTS"):
        b.run("window.scrollTo(0, 0)")
        b.shot(os.path.join(os.environ["SHOTS"], name + ".png"))


browser = Browser()
try:
    for each in sys.argv[1:]:
        look(browser, each)
finally:
    browser.close()
print(f"{len(sys.argv) - 1} pages, {failures} faults")
sys.exit(failures > 0)
