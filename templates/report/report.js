// report.js: the views of report.html. All numbers come from plan.json and the other files in the element "data".
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const KINDS = ["computes", "copies", "moves"]; // of a run
  const SVG_WIDTH = 1200;

  // ------------------------------------------------------------------------------------------------------- text

  // Marks that change the direction of text, and control characters, are shown as their numbers.
  const shown = (s) => String(s).replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (c) => "\\u{" + c.codePointAt(0).toString(16) + "}");
  const grouped = d3.format(",d");
  const three = d3.format(".3~r");
  const bytesText = (n) => {
    if (n < 10240) return grouped(n) + " B";
    const units = ["KiB", "MiB", "GiB", "TiB"];
    let u = 0, one = 1024;
    for (; u < 3 && n / one >= 1024; u++) one *= 1024;
    const tenths = Math.floor(n / one) * 10 + Math.ceil((n % one) * 10 / one); // rounded up, as in plan.txt
    return (tenths / 10).toFixed(1) + " " + units[u];
  };
  const secondsText = (s) => {
    if (!s) return "0";
    if (s >= 1) return s.toFixed(3) + " s";
    if (s >= 1e-3) return (s * 1e3).toFixed(3) + " ms";
    return s >= 1e-6 ? (s * 1e6).toFixed(1) + " us" : (s * 1e9).toFixed(1) + " ns";
  };
  const percent = (part, whole) => whole > 0 ? (100 * part / whole).toFixed(1) + " %" : "-";
  const lineText = (row) => row.line ? (row.file ? shown(row.file) + ":" : "line ") + row.line : "";
  const shapeText = (shape) => "[" + shape.join(", ") + "]";

  // ------------------------------------------------------------------------------------------------- the document

  const main = d3.select("#main"), nav = d3.select("#views");

  // A section of its own, with a link to it.
  function section(id, title) {
    nav.append("a").attr("href", "#" + id).text(title);
    const s = main.append("section").attr("id", id).attr("aria-labelledby", id + "-title");
    s.append("h2").attr("id", id + "-title").text(title);
    return s;
  }

  function key(to, entries) {
    const items = to.append("ul").attr("class", "key").selectAll("li").data(entries).join("li");
    items.append("i").style("background", (e) => e.color);
    items.append("span").text((e) => e.text);
  }

  // A table that its heads sort and a text filters. columns: {name, text(row), value(row)?, number?, draw(cell, row)?}.
  function table(to, rows, columns, options = {}) {
    let sort = options.sort ?? null, down = true, filter = "";
    const tools = to.append("p");
    const count = tools.append("span").attr("class", "faint").attr("role", "status");
    if (options.filters ?? rows.length > 8) {
      const label = tools.insert("label", "span").text("Filter ");
      label.append("input").attr("type", "search").attr("aria-label", "Filter " + options.name).on("input", function () {
        filter = this.value.toLowerCase();
        draw();
      });
    }
    const whole = to.append("div").attr("class", "scroll").attr("tabindex", 0).append("table").attr("aria-label", options.name);
    const heads = whole.append("thead").append("tr").selectAll("th").data(columns).join("th").attr("scope", "col")
      .attr("class", (c) => c.number ? "number" : null);
    heads.append("button").text((c) => c.name).on("click", (c) => {
      const i = columns.indexOf(c);
      down = sort === i ? !down : Boolean(c.number);
      sort = i;
      draw();
    });
    const body = whole.append("tbody");
    const valueOf = (c, row) => c.value ? c.value(row) : c.text(row);
    function draw() {
      let list = rows.filter((row) => !filter || columns.some((c) => c.text(row).toLowerCase().includes(filter)));
      if (sort !== null) {
        const c = columns[sort], order = down ? d3.descending : d3.ascending;
        list = list.map((row, i) => [row, i]).sort((a, b) => order(valueOf(c, a[0]), valueOf(c, b[0])) || a[1] - b[1]).map((p) => p[0]);
      }
      heads.attr("aria-sort", (c, i) => sort === i ? (down ? "descending" : "ascending") : "none");
      count.text(list.length === rows.length ? grouped(rows.length) + (rows.length === 1 ? " row" : " rows")
        : grouped(list.length) + " of " + grouped(rows.length) + " rows");
      const lines = body.selectAll("tr").data(list).join("tr").attr("class", (row) => options.lineClass ? options.lineClass(row) : null);
      lines.selectAll("td").data((row) => columns.map((c) => [c, row])).join("td").attr("class", (p) => p[0].number ? "number" : null)
        .each(function ([c, row]) {
          const cell = d3.select(this);
          cell.text("");
          if (c.draw) c.draw(cell, row);
          else cell.text(c.text(row));
        });
    }
    draw();
    return { draw };
  }

  const svg = (to, height, label) => to.append("svg").attr("viewBox", `0 0 ${SVG_WIDTH} ${height}`).attr("role", "img")
    .attr("aria-label", label);

  // ------------------------------------------------------------------------------------------------- dimensions

  const mesh = data.plan.mesh.filter((d) => !d.is_of_microbatches);
  const dimensionIndex = new Map(mesh.map((d, i) => [d.name, i]));
  const colorOf = (i) => `var(--c${i % 6})`;
  // The letter of a dimension, that colours alone do not say it: its first one that is free.
  const letters = [];
  for (const d of mesh) {
    const all = [...d.name.toUpperCase(), ..."ABCDEFGHIJKLMNOPQRSTUVWXYZ"];
    letters.push(all.find((c) => /[A-Z0-9]/.test(c) && !letters.includes(c)) ?? "?");
  }
  // A group is named by its dimensions, as dp_tp.
  const groupIndex = (group) => dimensionIndex.get(group) ?? mesh.findIndex((d) => group.split("_").includes(d.name));
  const groupColor = (group) => groupIndex(group) < 0 ? "var(--faint)" : colorOf(groupIndex(group));

  function chips(to, placement) {
    for (const [name, at] of Object.entries(placement)) {
      const i = dimensionIndex.get(name);
      if (i === undefined) continue; // micro-batches
      to.append("span").attr("class", `chip c${i % 6}`).attr("title", shown(name)).text(`${letters[i]} ${at}`);
    }
  }
  const placementText = (p) => Object.entries(p).map(([name, at]) => `${shown(name)} ${at}`).join(", ");

  function coordinates(rank) {
    const at = [];
    for (let d = mesh.length - 1; d >= 0; d--) {
      at[d] = rank % mesh[d].size;
      rank = Math.floor(rank / mesh[d].size);
    }
    return at;
  }

  // ------------------------------------------------------------------------------------------------ step figures

  // Of a plan: the runs of a timeline with their weights in a step, and what each dimension exposes.
  function timesOf(plan) {
    const t = plan.timeline;
    const sums = { work: new Map(), waits: new Map(), module: new Map() };
    if (!t) return sums;
    const add = (map, name, n) => map.set(name, (map.get(name) ?? 0) + n);
    for (const [op, , , what, , took, waited] of t.runs) {
      const o = t.operations[op], times = o.once ? 1 : t.times[o.phase] ?? 1;
      if (KINDS[what] === "moves") {
        if (waited) add(sums.waits, o.group, waited * times * 1e-9);
      } else {
        add(sums.work, o.phase, took * times * 1e-9);
        add(sums.module, o.module, took * times * 1e-9);
      }
    }
    return sums;
  }

  function stepParts(plan) {
    const step = plan.simulated_step;
    if (!step) return [];
    const slowest = step.stragglers ? [{ name: "the slowest rank takes longer", seconds: step.stragglers, color: "var(--idle)" }] : [];
    if (plan.pipeline) {
      const busy = step.pipeline - step.idle - step.exposed;
      return [
        { name: "arithmetic", seconds: Math.max(0, busy), color: "var(--work)" },
        { name: "exposed transfers", seconds: step.exposed, color: "var(--c1)" },
        { name: "idle: waits for other stages", seconds: step.idle, color: "var(--idle)" },
        { name: "gathers and update", seconds: step.update, color: "var(--update)" },
        ...slowest,
      ];
    }
    const times = timesOf(plan), parts = [];
    for (const [phase, seconds] of times.work)
      parts.push({ name: phase === "update" ? "update" : `arithmetic, ${phase}`, seconds,
        color: phase === "update" ? "var(--update)" : "var(--work)" });
    for (const [group, seconds] of times.waits)
      parts.push({ name: `exposed transfers over ${shown(group)}`, seconds, color: groupColor(group) });
    return [...parts, ...slowest];
  }

  function stepView() {
    const step = data.plan.simulated_step;
    if (!step) {
      const s = section("step", "Step");
      s.append("p").text("The plan has no device: no step is simulated. With -D device=H100, or another, or a cluster, it is.");
      return;
    }
    const s = section("step", "Step"), parts = stepParts(data.plan), whole = d3.sum(parts, (p) => p.seconds);
    const bar = s.append("div").attr("class", "bar").attr("role", "img")
      .attr("aria-label", parts.map((p) => `${p.name}: ${secondsText(p.seconds)}`).join("; "));
    bar.selectAll("div").data(parts).join("div").style("width", (p) => 100 * p.seconds / whole + "%")
      .style("background", (p) => p.color).attr("title", (p) => `${p.name}: ${secondsText(p.seconds)}`);
    key(s, parts.map((p) => ({ color: p.color, text: `${p.name}: ${secondsText(p.seconds)}, ${percent(p.seconds, whole)}` })));
    const most = d3.greatest(parts, (p) => p.seconds);
    const waits = parts.filter((p) => /exposed|idle/.test(p.name)), worst = d3.greatest(waits, (p) => p.seconds);
    s.append("p").attr("id", "bottleneck").text(`The most of the step is ${most.name}: ${percent(most.seconds, whole)}.` +
      (worst && worst !== most && worst.seconds > 0 ? ` Of what waits, the most is ${worst.name}: ${percent(worst.seconds, whole)}.` : ""));
  }

  // --------------------------------------------------------------------------------------------------- the mesh

  function meshView() {
    const s = section("mesh", "Mesh"), machine = data.plan.machine, world = data.plan.ranks;
    const perNode = machine?.devices_of_node || world, most = 256, n = Math.min(world, most);
    const list = s.append("ul");
    mesh.forEach((d, i) => {
      const link = machine?.links.find((l) => l.dimension === d.name);
      const item = list.append("li");
      item.append("span").attr("class", `chip c${i % 6}`).text(letters[i]);
      item.append("span").text(` ${shown(d.name)}: ${d.size} ranks` + (!link || d.size === 1 ? "" :
        `, ${link.in_node === undefined ? "" : link.in_node ? "within a node, " : "over nodes, "}` +
        `links of ${three(link.bandwidth / 1e9)} GB/s and ${secondsText(link.latency)}`));
    });
    const nodes = Math.ceil(n / perNode), cell = Math.max(26, Math.min(70, 360 / perNode)), across = Math.max(1, Math.floor(SVG_WIDTH / (cell * Math.min(perNode, 8) + 24)));
    const columns = Math.min(perNode, 8), rows = Math.ceil(perNode / columns), w = columns * cell + 12, h = rows * 30 + 26;
    const picture = svg(s, Math.ceil(nodes / across) * (h + 8) + 6, `${world} ranks on ${Math.ceil(world / perNode)} nodes`);
    for (let node = 0; node < nodes; node++) {
      const g = picture.append("g").attr("transform", `translate(${6 + (node % across) * (w + 10)},${6 + Math.floor(node / across) * (h + 8)})`);
      g.append("rect").attr("width", w).attr("height", h).attr("fill", "none").attr("stroke", "var(--line)");
      g.append("text").attr("x", 6).attr("y", 14).attr("class", "faint").text(machine?.devices_of_node ? `node ${node}` : "ranks");
      for (let k = 0; k < perNode && node * perNode + k < n; k++) {
        const rank = node * perNode + k, at = coordinates(rank);
        const c = g.append("g").attr("transform", `translate(${6 + (k % columns) * cell},${20 + Math.floor(k / columns) * 30})`);
        c.append("rect").attr("width", cell - 4).attr("height", 26).attr("fill", "var(--ground)").attr("stroke", "var(--line)");
        c.append("text").attr("x", 3).attr("y", 11).text(rank);
        const where = c.append("text").attr("x", 3).attr("y", 22);
        at.forEach((x, d) => { if (mesh[d].size > 1) where.append("tspan").attr("fill", colorOf(d)).text(letters[d].toLowerCase() + x + " "); });
        c.append("title").text(`rank ${rank}: ` + at.map((x, d) => `${shown(mesh[d].name)} ${x}`).join(", "));
      }
    }
    if (n < world) s.append("p").attr("class", "faint").text(`The first ${n} of ${grouped(world)} ranks.`);
  }

  // -------------------------------------------------------------------------------------------------- modules

  // "layers.3.attention" belongs to "layers.0-31.attention", if parameters have that name.
  function foldsOf(plan) {
    const folds = [];
    for (const p of plan.parameters ?? []) {
      const words = p.name.split(".");
      words.forEach((word, i) => {
        const m = /^(\d+)-(\d+)$/.exec(word);
        if (m) folds.push({ before: words.slice(0, i).join("."), first: +m[1], last: +m[2], word });
      });
    }
    return folds;
  }
  function foldedPath(path, folds) {
    const words = path ? path.split(".") : [];
    words.forEach((word, i) => {
      if (!/^\d+$/.test(word)) return;
      const before = words.slice(0, i).join(".");
      const fold = folds.find((f) => f.before === before && +word >= f.first && +word <= f.last);
      if (fold) words[i] = fold.word;
    });
    return words.join(".");
  }

  // The parameters of which a rank here has a part: of a pipeline, those of its stages.
  const here = (plan) => (plan.parameters ?? []).filter((p) => p.local.some((l) => !l.shape.includes(0)));

  // The tree of modules, with what each has: parameters and activations; bytes and seconds are sums of a subtree.
  function moduleTree(plan) {
    const folds = foldsOf(plan), root = { path: "", name: "the model", children: new Map(), rows: [], bytes: 0, seconds: 0 };
    const at = (path) => {
      let node = root, so_far = [];
      for (const word of path ? path.split(".") : []) {
        so_far.push(word);
        if (!node.children.has(word))
          node.children.set(word, { path: so_far.join("."), name: word, children: new Map(), rows: [], bytes: 0, seconds: 0 });
        node = node.children.get(word);
      }
      return node;
    };
    const sizes = { f32: 4, bf16: 2, i32: 4, i64: 8, bool: 1, i8: 1, f64: 8 };
    for (const p of here(plan)) {
      const dot = p.name.lastIndexOf(".");
      const each = d3.max(p.local, (l) => l.shape.reduce((a, b) => a * b, 1)) ?? 0;
      at(foldedPath(dot < 0 ? "" : p.name.slice(0, dot), folds)).rows.push({ kind: "parameter", name: p.name.slice(dot + 1), type: p.type,
        shape: p.shape, local: p.local[0]?.shape ?? [], others: p.local.length > 1, placement: p.placement, count: p.count,
        bytes: each * sizes[p.type] * p.count, asked: p.asked, frozen: p.frozen });
    }
    const seen = new Set();
    for (const a of plan.activations ?? []) {
      const path = foldedPath(a.module, folds), name = foldedPath(a.name, folds);
      const short = name.startsWith(path + ".") ? name.slice(path.length + 1) : name;
      const mark = JSON.stringify([path, short, a.phase, a.shape, a.placement]);
      if (seen.has(mark)) continue;
      seen.add(mark);
      at(path).rows.push({ kind: "activation", name: short, type: a.type, shape: a.shape, local: a.local, placement: a.placement,
        count: a.kept ?? 1, bytes: a.bytes, asked: lineText(a), phase: a.phase });
    }
    for (const [module, seconds] of timesOf(plan).module) at(foldedPath(module, folds)).seconds += seconds;
    const sum = (node) => {
      for (const child of node.children.values()) {
        sum(child);
        node.seconds += child.seconds;
        node.bytes += child.bytes;
      }
      node.bytes += d3.sum(node.rows, (r) => r.kind === "parameter" ? r.bytes : 0);
    };
    sum(root);
    return root;
  }

  function moduleView(to, plan) {
    const root = moduleTree(plan), open = new Set([""]);
    let filter = "", activations = false;
    const tools = to.append("p");
    tools.append("label").text("Filter ").append("input").attr("type", "search").attr("aria-label", "Filter modules").on("input", function () {
      filter = this.value.toLowerCase();
      draw();
    });
    const box = tools.append("label");
    box.append("input").attr("type", "checkbox").on("change", function () { activations = this.checked; draw(); });
    box.append("span").text(" activations, too");
    tools.append("button").attr("class", "plain").attr("type", "button").text("Unfold all").on("click", () => { everyNode(root, (n) => open.add(n.path)); draw(); });
    tools.append("button").attr("class", "plain").attr("type", "button").text("Fold all").on("click", () => { open.clear(); open.add(""); draw(); });
    const whole = to.append("div").attr("class", "scroll").attr("tabindex", 0).append("table").attr("role", "treegrid").attr("aria-label", "Modules");
    whole.append("thead").append("tr").selectAll("th").data(["Module", "Placement", "Shape", "On a rank", "Bytes of a rank", "Arithmetic", "Asked by"])
      .join("th").attr("scope", "col").attr("class", (n, i) => i === 4 || i === 5 ? "number" : null).text((n) => n);
    const body = whole.append("tbody");
    function everyNode(node, f) {
      f(node);
      for (const child of node.children.values()) everyNode(child, f);
    }
    const matches = (node) => !filter || node.path.toLowerCase().includes(filter) ||
      node.rows.some((r) => r.name.toLowerCase().includes(filter)) || [...node.children.values()].some(matches);
    function list(node, level, lines) {
      if (!matches(node)) return;
      lines.push({ node, level });
      if (!open.has(node.path) && !filter) return;
      for (const row of node.rows) {
        if (row.kind === "activation" && !activations) continue;
        if (filter && !row.name.toLowerCase().includes(filter) && !node.path.toLowerCase().includes(filter)) continue;
        lines.push({ row, node, level: level + 1 });
      }
      for (const child of node.children.values()) list(child, level + 1, lines);
    }
    function draw() {
      const lines = [];
      list(root, 1, lines);
      body.selectAll("tr").remove();
      for (const line of lines) {
        const tr = body.append("tr").attr("aria-level", line.level), first = tr.append("td").style("padding-left", line.level * 1.1 - .5 + "rem");
        if (line.row) {
          const r = line.row;
          first.append("span").attr("class", "faint").text(r.kind === "parameter" ? (r.frozen ? "frozen " : "") : r.phase + " ");
          first.append("span").text(shown(r.name) + (r.count > 1 ? ` × ${r.count}` : ""));
          chips(tr.append("td"), r.placement);
          tr.append("td").text(`${r.type} ${shapeText(r.shape)}`);
          tr.append("td").text(shapeText(r.local) + (r.others ? " and others" : ""));
          tr.append("td").attr("class", "number").text(r.bytes ? bytesText(r.bytes) : "");
          tr.append("td");
          tr.append("td").text(shown(r.asked ?? ""));
          continue;
        }
        const n = line.node, has = n.children.size || n.rows.length, is_open = open.has(n.path) || Boolean(filter);
        const m = /^(\d+)-(\d+)$/.exec(n.name);
        if (has) first.append("button").attr("class", "fold").attr("type", "button").attr("aria-expanded", is_open)
          .attr("aria-label", (is_open ? "Fold " : "Unfold ") + shown(n.path || n.name)).text(is_open ? "▾" : "▸")
          .on("click", () => {
            if (open.has(n.path)) open.delete(n.path);
            else open.add(n.path);
            draw();
            body.selectAll("button.fold").filter(function () { return this.getAttribute("aria-label").endsWith(" " + shown(n.path || n.name)); }).node()?.focus();
          });
        first.append("strong").text(shown(n.name) + (m ? ` × ${+m[2] - +m[1] + 1}` : ""));
        tr.append("td");
        tr.append("td");
        tr.append("td");
        tr.append("td").attr("class", "number").text(n.bytes ? bytesText(n.bytes) : "");
        tr.append("td").attr("class", "number").text(n.seconds ? secondsText(n.seconds) : "");
        tr.append("td");
      }
    }
    draw();
    blockView(to, plan);
  }

  // Which rank has which block of a tensor: by the placements that are plain shards.
  function blockView(to, plan) {
    const tensors = here(plan);
    if (!tensors.length) return;
    to.append("h3").text("Which rank has which block");
    const choose = to.append("p").append("label").text("Tensor ").append("select").attr("aria-label", "Tensor");
    choose.selectAll("option").data(tensors).join("option").attr("value", (t, i) => i).text((t) => shown(t.name.length > 120 ? t.name.slice(0, 120) + "…" : t.name));
    const at = to.append("div");
    const draw = () => drawBlocks(at, tensors[+choose.property("value")]);
    choose.on("change", draw);
    draw();
  }

  function cutsOf(t) {
    const cuts = t.shape.map(() => []);
    for (const [name, at] of Object.entries(t.placement)) {
      const m = /^S\((\d+)\)(?:\[(\d+)\])?$/.exec(at);
      if (at.startsWith("S") && !m) return null;
      if (m && dimensionIndex.has(name)) cuts[+m[1]].push({ dim: dimensionIndex.get(name), order: m[2] === undefined ? dimensionIndex.get(name) : +m[2] });
    }
    for (const c of cuts) c.sort((a, b) => a.order - b.order);
    return cuts;
  }

  function drawBlocks(to, t) {
    to.selectAll("*").remove();
    const cuts = cutsOf(t), most = 4096;
    if (!cuts) {
      to.append("p").text("Strided shards: " + t.local.map((l) => `ranks ${l.ranks}: ${shapeText(l.shape)}`).join("; "));
      return;
    }
    const parts = cuts.map((c) => c.reduce((n, x) => n * mesh[x.dim].size, 1));
    const cut = parts.map((n, d) => [n, d]).filter(([n]) => n > 1).map(([, d]) => d);
    const down = cut[0] ?? 0, across = cut[1] ?? (t.shape.length > 1 ? (down === 0 ? 1 : 0) : null);
    const blocks = new Map();
    for (let rank = 0; rank < data.plan.ranks && rank < most; rank++) {
      const where = coordinates(rank), index = cuts.map((c) => c.reduce((i, x) => i * mesh[x.dim].size + where[x.dim], 0));
      const name = index.join(",");
      if (!blocks.has(name)) blocks.set(name, { index, ranks: [] });
      blocks.get(name).ranks.push(rank);
    }
    const rows = Math.min(parts[down] ?? 1, 64), columns = Math.min(across === null ? 1 : parts[across], 64);
    const h = Math.max(8, Math.min(40, 320 / rows)), w = (SVG_WIDTH - 90) / columns;
    const picture = svg(to, rows * h + 30, `Blocks of ${shown(t.name)}: ${rows} by ${columns}`);
    const first = (b) => b.ranks.length > 3 ? `${b.ranks[0]}, ${b.ranks[1]}, … ${b.ranks[b.ranks.length - 1]}` : b.ranks.join(", ");
    for (const b of blocks.values()) {
      const r = b.index[down] ?? 0, c = across === null ? 0 : b.index[across];
      if (r >= rows || c >= columns || b.index.some((i, d) => d !== down && d !== across && i)) continue;
      const g = picture.append("g").attr("transform", `translate(${80 + c * w},${22 + r * h})`);
      const dims = [...(cuts[down] ?? []), ...(across === null ? [] : cuts[across])];
      g.append("rect").attr("width", w - 1).attr("height", h - 1).attr("fill", "var(--ground)")
        .attr("stroke", dims.length ? colorOf(dims[0].dim) : "var(--line)");
      if (w > 40 && h > 11) g.append("text").attr("x", 4).attr("y", Math.min(h - 3, h / 2 + 4)).text(first(b).slice(0, Math.floor(w / 6)));
      g.append("title").text(`block ${b.index.join(", ")}: ranks ${b.ranks.slice(0, 200).join(", ")}${b.ranks.length > 200 ? ", …" : ""}`);
    }
    picture.append("text").attr("x", 4).attr("y", 14).attr("class", "faint").text(`dimension ${down} of ${t.shape[down] ?? 1} down` +
      (across === null ? "" : `, ${across} of ${t.shape[across]} across`) + `; each block ${shapeText(t.local[0]?.shape ?? [])}; ranks in blocks`);
    if (cut.length > 2) to.append("p").attr("class", "faint").text("Cut along more dimensions: the picture has the first block of the others.");
  }

  // -------------------------------------------------------------------------------------------------- transfers

  function transferView(to, plan) {
    const rows = (plan.collectives ?? []).map((c) => ({ ...c, all: c.sent * c.times, seconds: (c.takes_ns ?? 0) * 1e-9 * c.times,
      exposed: (c.waited_for_ns ?? 0) * 1e-9 * c.times, hidden: Math.max(0, (c.takes_ns ?? 0) - (c.waited_for_ns ?? 0)) * 1e-9 * c.times }));
    if (!rows.length) {
      to.append("p").text("No transfers in a step.");
      return;
    }
    const timed = rows.some((r) => r.takes_ns !== undefined);
    table(to, rows, [
      { name: "Kind", text: (r) => r.kind },
      { name: "Over", text: (r) => shown(r.group), draw: (cell, r) => {
        const i = groupIndex(r.group);
        if (i >= 0) cell.append("span").attr("class", `chip c${i % 6}`).text(letters[i]);
        cell.append("span").text(shown(r.group));
      } },
      { name: "Phase", text: (r) => r.phase },
      { name: "Ranks", text: (r) => grouped(r.ranks), value: (r) => r.ranks, number: true },
      { name: "Calls a step", text: (r) => grouped(r.times), value: (r) => r.times, number: true },
      { name: "A rank sends, each", text: (r) => bytesText(r.sent), value: (r) => r.sent, number: true },
      { name: "A rank sends, a step", text: (r) => bytesText(r.all), value: (r) => r.all, number: true },
      ...(timed ? [
        { name: "Time a step", text: (r) => secondsText(r.seconds), value: (r) => r.seconds, number: true },
        { name: "Exposed a step", text: (r) => secondsText(r.exposed), value: (r) => r.exposed, number: true },
        { name: "Hidden", text: (r) => r.seconds ? percent(r.hidden, r.seconds) : "-", value: (r) => r.seconds ? r.hidden / r.seconds : 0, number: true },
        { name: "Beside", text: (r) => (r.beside ?? []).map(shown).join(", ") },
      ] : []),
      { name: "Why", text: (r) => shown(r.why) },
      { name: "Plan", text: (r) => lineText(r) },
    ], { name: "transfers", sort: timed ? 8 : 6 });
    pairView(to, plan);
  }

  function pairView(to, plan) {
    const p = plan.pairs;
    if (!p) return;
    to.append("h3").text("Bytes between ranks in a step");
    const n = p.bytes.length, m = p.bytes[0].length, cell = Math.max(7, Math.min(26, 900 / Math.max(n, m)));
    const most = d3.max(p.bytes, (row) => d3.max(row)) || 1, shade = d3.scaleSequential(d3.interpolateBlues).domain([0, most]);
    const of = (c) => p.ranks_of_column === 1 ? `${c}` : `${c * p.ranks_of_column}-${Math.min(data.plan.ranks, (c + 1) * p.ranks_of_column) - 1}`;
    const picture = svg(to, n * cell + 40, "Bytes that each rank has to bring to each other one, from 0 to " + bytesText(most));
    picture.append("text").attr("x", 50).attr("y", 14).attr("class", "faint")
      .text(`rows: the sender; columns: the receiver${p.ranks_of_column > 1 ? ", " + p.ranks_of_column + " ranks each" : ""}; darkest: ${bytesText(most)}`);
    p.bytes.forEach((row, r) => {
      picture.append("text").attr("x", 44).attr("y", 32 + r * cell).attr("text-anchor", "end").text(n <= 32 || r % 8 === 0 ? r : "");
      row.forEach((bytes, c) => {
        const rect = picture.append("rect").attr("x", 50 + c * cell).attr("y", 22 + r * cell).attr("width", cell - .5).attr("height", cell - .5)
          .attr("fill", bytes ? shade(bytes) : "var(--ground)");
        rect.append("title").text(`rank ${r} to ${of(c)}: ${bytesText(bytes)}`);
      });
    });
    to.append("p").attr("class", "faint").text("What a rank has and another one needs. NCCL and MPI may send it by way of others.");
  }

  // --------------------------------------------------------------------------------------------------- timeline

  // rows: names; bars: {row, begin, length, text, label, color, of}; all times in seconds.
  function timelineView(to, rows, bars, arrows, name) {
    const used = [...new Set(bars.map((b) => b.row))].sort(d3.ascending); // streams on which nothing runs are left out
    bars = bars.map((b) => ({ ...b, row: used.indexOf(b.row) }));
    rows = used.map((r) => rows[r]);
    const left = 110, top = 24, h = 26, height = top + rows.length * h + 8, end = d3.max(bars, (b) => b.begin + b.length) || 1;
    const x = d3.scaleLinear().domain([0, end]).range([left, SVG_WIDTH - 8]);
    to.append("p").attr("class", "faint").text("Wheel or + and - zoom, drag or the arrow keys move, 0 shows all; a bar says what it is.");
    const picture = svg(to, height, name).attr("tabindex", 0).attr("class", "timeline");
    const clip = "clip-" + to.attr("id");
    picture.append("clipPath").attr("id", clip).append("rect").attr("x", left).attr("width", SVG_WIDTH - left - 8).attr("height", height);
    rows.forEach((row, r) => picture.append("text").attr("x", 4).attr("y", top + r * h + 16).text(shown(row)));
    const axis = picture.append("g").attr("class", "axis").attr("transform", `translate(0,${top - 4})`);
    const content = picture.append("g").attr("clip-path", `url(#${clip})`);
    const byRow = d3.groups(bars, (b) => b.row);
    function draw(scale) {
      axis.call(d3.axisTop(scale).ticks(8).tickFormat((s) => secondsText(s)));
      const visible = [], [from, until] = scale.domain();
      for (const [, list] of byRow) {
        let last = null; // bars too narrow to be seen are drawn as one
        for (const b of list) {
          if (b.begin + b.length < from || b.begin > until) continue;
          const x0 = scale(b.begin), w = scale(b.begin + b.length) - x0;
          if (last && w < .7 && x0 - last.x0 - last.w < .7 && last.b.color === b.color && last.narrow) {
            last.w = x0 + w - last.x0;
            last.many++;
            continue;
          }
          last = { b, x0, w, many: 1, narrow: w < .7 };
          visible.push(last);
        }
      }
      const g = content.selectAll("g.bar-of").data(visible).join((enter) => {
        const made = enter.append("g").attr("class", "bar-of");
        made.append("rect");
        made.append("text");
        made.append("title");
        return made;
      });
      g.attr("transform", (v) => `translate(${v.x0},${top + v.b.row * h + 2})`);
      g.select("rect").attr("width", (v) => Math.max(v.w, .5)).attr("height", h - 4).attr("fill", (v) => v.b.color).attr("stroke", (v) => v.w > 3 ? "var(--ground)" : "none");
      g.select("text").attr("x", 3).attr("y", 15).text((v) => v.w > 30 ? v.b.label.slice(0, Math.floor(v.w / 6.5)) : "");
      g.select("title").text((v) => v.many > 1 ? `${v.many} operations, the first: ${v.b.text}` : v.b.text);
      content.selectAll("path.arrow").data(arrows.length > 3000 && until - from > end / 4 ? [] : arrows.filter((a) => a.until >= from && a.from <= until)).join("path")
        .attr("class", "arrow").attr("d", (a) => `M${scale(a.from)},${top + a.row * h + h / 2}L${scale(a.until)},${top + a.to * h + h / 2}`);
    }
    let now = d3.zoomIdentity;
    const zoom = d3.zoom().scaleExtent([1, 20000]).translateExtent([[left, 0], [SVG_WIDTH - 8, height]]).extent([[left, 0], [SVG_WIDTH - 8, height]])
      .on("zoom", () => {
        now = d3.event.transform;
        draw(now.rescaleX(x));
      });
    picture.call(zoom).on("dblclick.zoom", null);
    picture.on("keydown", () => {
      const act = { "+": () => zoom.scaleBy(picture, 1.5), "-": () => zoom.scaleBy(picture, 1 / 1.5), "0": () => zoom.transform(picture, d3.zoomIdentity),
        ArrowLeft: () => zoom.translateBy(picture, 80 / now.k, 0), ArrowRight: () => zoom.translateBy(picture, -80 / now.k, 0) }[d3.event.key];
      if (!act) return;
      d3.event.preventDefault();
      act();
    });
    draw(x);
  }

  const phaseColor = { forward: "var(--work)", backward: "var(--kept)", update: "var(--update)", gather: "var(--temporary)" };

  function stepTimeline(to, plan) {
    const t = plan.timeline;
    if (!t) {
      to.append("p").text("No device, no timeline.");
      return;
    }
    const bars = t.runs.map(([op, module, stream, what, begin, took, waited]) => {
      const o = t.operations[op], moves = KINDS[what] === "moves", name = (KINDS[what] === "copies" ? "copies of " : "") + shown(o.name);
      const where = o.module ? shown(o.module) + (module >= 0 ? `, module ${module} of the list` : "") : "";
      return { row: stream, begin: begin * 1e-9, length: took * 1e-9, label: moves ? o.name : shown(o.module ? o.module.split(".").slice(-1)[0] : o.name),
        text: `${name}${o.group ? " over " + shown(o.group) : ""}, ${o.phase}; ${where}; ${lineText(o)}; ${secondsText(took * 1e-9)} from ` +
          secondsText(begin * 1e-9) + (moves ? `; exposed ${secondsText(waited * 1e-9)}` : ""),
        color: moves ? groupColor(o.group) : phaseColor[o.phase] ?? "var(--work)" };
    });
    const once = Math.max(...Object.values(t.times));
    if (once > 1) to.append("p").text(`One of ${once} micro-batches or batches of a step, and the update.`);
    timelineView(to, t.streams, bars, [], "Timeline of a step");
    key(to, [...Object.entries(phaseColor).map(([phase, color]) => ({ color, text: "arithmetic, " + phase })),
      ...mesh.map((d, i) => ({ color: colorOf(i), text: `${letters[i]}: transfers over ${shown(d.name)}` }))]);
  }

  function pipelineTimeline(to, plan) {
    const ranks = 1 + d3.max(plan.actions, (a) => a[0]), stages = 1 + d3.max(plan.actions, (a) => a[2]);
    const batches = 1 + d3.max(plan.actions, (a) => a[3]), color = (m) => d3.interpolateRainbow(m / batches);
    const ends = new Map(), bars = plan.actions.map(([rank, text, stage, batch, begin, took]) => {
      const kind = /[A-Z]/.exec(text)?.[0] ?? "";
      ends.set(`${kind} ${stage} ${batch}`, { rank, begin: begin * 1e-9, end: (begin + took) * 1e-9 });
      return { row: rank, begin: begin * 1e-9, length: took * 1e-9, label: text,
        text: `${text}: stage ${stage}, micro-batch ${batch}, ${secondsText(took * 1e-9)} from ${secondsText(begin * 1e-9)}`, color: color(batch) };
    });
    const arrows = [];
    const arrow = (from, to_) => {
      const a = ends.get(from), b = ends.get(to_);
      if (a && b && a.rank !== b.rank) arrows.push({ row: a.rank, from: a.end, to: b.rank, until: b.begin });
    };
    for (let s = 0; s < stages; s++)
      for (let m = 0; m < batches; m++) {
        arrow(`F ${s} ${m}`, `F ${s + 1} ${m}`);
        for (const kind of ["B", "I"]) arrow(`${kind} ${s} ${m}`, `${kind} ${s - 1} ${m}`);
      }
    to.append("p").text(`A row for each rank along ${shown(plan.pipeline.over)}; F: forward, B: backward, I and W: its two halves; a colour for each of ${batches} micro-batches; arrows: sends.`);
    timelineView(to, d3.range(ranks).map((r) => `${plan.pipeline.over} ${r}`), bars, arrows, "Timeline of the pipeline");
  }

  // ----------------------------------------------------------------------------------------------------- memory

  const ROLES = ["parameters", "gradients", "optimizer", "batch", "cache", "outputs", "parts", "workspace", "libraries"];

  function memoryView(to, plan) {
    const m = plan.memory_of_rank, over = plan.memory_over_time, limit = data.plan.machine?.memory || plan.machine?.memory || m?.limit || 0;
    if (!m || !over) return;
    const held = ROLES.filter((role) => m[role]).map((role, i) => ({ name: role, bytes: m[role], color: d3.schemeTableau10[i % 10] }));
    const points = over.activations.map(([time, kept, temporary]) => ({ time, kept, temporary }));
    const slots = Math.max(0, m.activations - (d3.max(points, (p) => p.kept + p.temporary) ?? 0));
    const end = over.in_nanoseconds && plan.timeline ? d3.max(plan.timeline.runs, (r) => r[4] + r[5]) : (d3.max(points, (p) => p.time) ?? 0) + 1;
    if (points.length) points.push({ ...points[points.length - 1], time: end });
    const layers = [...held.map((h) => ({ ...h, of: () => h.bytes })),
      { name: "activations kept for the backward", color: "var(--kept)", of: (p) => p.kept }, { name: "temporary", color: "var(--temporary)", of: (p) => p.temporary },
      { name: plan.pipeline_stage || slots ? "room beside: micro-batches in flight, and gaps" : "room beside", color: "var(--line)", of: (p) => Math.max(0, m.activations - p.kept - p.temporary) }];
    const all = m.total + (m.libraries ?? 0), near = limit && all > limit / 4, top = (near ? Math.max(all, limit) : all) * 1.1, height = 320;
    const picture = svg(to, height, `Memory of a rank over a step: ${bytesText(all)}${limit ? " of " + bytesText(limit) : ""}`);
    const x = d3.scaleLinear().domain([0, end]).range([90, SVG_WIDTH - 10]), y = d3.scaleLinear().domain([0, top]).range([height - 26, 8]);
    let below = points.map(() => 0);
    for (const layer of layers) {
      const sums = points.map((p, i) => [below[i], below[i] + layer.of(p)]);
      const area = d3.area().curve(d3.curveStepAfter).x((s, i) => x(points[i].time)).y0((s) => y(s[0])).y1((s) => y(s[1]));
      picture.append("path").attr("d", area(sums)).attr("fill", layer.color).append("title").text(layer.name);
      below = sums.map((s) => s[1]);
    }
    picture.append("g").attr("class", "axis").attr("transform", "translate(90,0)").call(d3.axisLeft(y).ticks(6).tickFormat(bytesText));
    picture.append("g").attr("class", "axis").attr("transform", `translate(0,${height - 26})`)
      .call(d3.axisBottom(x).ticks(8).tickFormat((t) => over.in_nanoseconds ? secondsText(t * 1e-9) : t));
    if (near) picture.append("line").attr("class", "limit").attr("x1", 90).attr("x2", SVG_WIDTH - 10).attr("y1", y(limit)).attr("y2", y(limit)).append("title").text("the device's " + bytesText(limit));
    key(to, layers.map((l) => ({ color: l.color, text: l.bytes === undefined ? l.name : `${l.name}: ${bytesText(l.bytes)}` })));
    to.append("p").text(`In all ${bytesText(all)}` + (limit ? `, ${percent(all, limit)} of ${bytesText(limit)}` : "") +
      `; the activations' arena ${bytesText(m.activations)}; most is held in ${shown(over.peak_in ?? "-")}.`);
    to.append("h3").text("The largest when most is held");
    table(to, over.at_peak, [
      { name: "Value", text: (v) => shown(v.name) + (v.count > 1 ? ` × ${v.count}` : "") },
      { name: "Module", text: (v) => shown(v.module) },
      { name: "Kept for the backward", text: (v) => v.kept ? "yes" : "no" },
      { name: "Bytes", text: (v) => bytesText(v.bytes), value: (v) => v.bytes, number: true },
    ], { name: "largest values" });
  }

  // ------------------------------------------------------------------------------------------ stages of a pipeline

  function stagesView() {
    const rows = data.plan.pipeline.stages, s = section("stages", "Stages");
    table(s, rows, [
      { name: "Stage", text: (r) => String(r.stage), value: (r) => r.stage, number: true },
      { name: "At " + shown(data.plan.pipeline.over), text: (r) => String(r.at), value: (r) => r.at, number: true },
      { name: "Forward", text: (r) => r.forward === undefined ? "-" : secondsText(r.forward), value: (r) => r.forward ?? 0, number: true },
      { name: "Backward", text: (r) => r.backward === undefined ? "-" : secondsText(r.backward), value: (r) => r.backward ?? 0, number: true },
      { name: "In flight", text: (r) => String(r.in_flight), value: (r) => r.in_flight, number: true },
      { name: "Sends forward", text: (r) => bytesText(r.sends_forward), value: (r) => r.sends_forward, number: true },
      { name: "Sends back", text: (r) => bytesText(r.sends_backward), value: (r) => r.sends_backward, number: true },
      { name: "Memory of a rank", text: (r) => bytesText(r.memory_of_rank), value: (r) => r.memory_of_rank, number: true },
    ], { name: "stages", filters: false });
    const most = d3.max(rows, (r) => r.memory_of_rank), bars = s.append("div");
    bars.selectAll("div").data(rows).join("div").attr("class", "bar").style("height", "1rem").style("width", (r) => 100 * r.memory_of_rank / most + "%")
      .style("background", "var(--kept)").attr("title", (r) => `stage ${r.stage}: ${bytesText(r.memory_of_rank)}`);
  }

  // ------------------------------------------------------------------------------------------------- alternatives

  function searchView() {
    const found = data.search;
    if (!found) return;
    const s = section("alternatives", "Alternatives"), nameOf = (c) => Object.entries(c.settings).map(([k, v]) => `${shown(k)}=${shown(v)}`).join(" ") || "defaults";
    const all = found.candidates.map((c, i) => ({ ...c, number: i, name: nameOf(c) }));
    const there = all.filter((c) => c.seconds > 0 && c.bytes > 0), limit = found.limit ?? data.plan.machine?.memory ?? 0, height = 420;
    const x = d3.scaleLog().domain(d3.extent(there, (c) => c.seconds)).range([100, SVG_WIDTH - 30]);
    const y = d3.scaleLinear().domain([0, Math.max(limit, d3.quantile(there.map((c) => c.bytes).sort(d3.ascending), .95) ?? 0) * 1.1]).range([height - 30, 10]).clamp(true);
    const picture = svg(s, height, `${there.length} plans: step against memory`), isBest = (c) => JSON.stringify(c.settings) === JSON.stringify(found.best?.settings);
    picture.append("g").attr("class", "axis").attr("transform", `translate(0,${height - 30})`).call(d3.axisBottom(x).ticks(8).tickFormat((t) => secondsText(t)));
    picture.append("g").attr("class", "axis").attr("transform", "translate(90,0)").call(d3.axisLeft(y).ticks(6).tickFormat(bytesText));
    if (limit) picture.append("line").attr("class", "limit").attr("x1", 90).attr("x2", SVG_WIDTH - 20).attr("y1", y(limit)).attr("y2", y(limit));
    const dots = picture.selectAll("g.dot").data([...there].sort((a, b) => isBest(a) - isBest(b))).join("g").attr("class", "dot").attr("transform", (c) => `translate(${x(c.seconds)},${y(c.bytes)})`);
    dots.append("path").attr("d", d3.symbol().type((c) => isBest(c) ? d3.symbolStar : c.fits ? d3.symbolCircle : d3.symbolCross).size((c) => isBest(c) ? 160 : 40))
      .attr("fill", (c) => isBest(c) ? "var(--c1)" : c.fits ? "var(--c0)" : "var(--faint)");
    dots.append("title").text((c) => `${c.name}: ${secondsText(c.seconds)}, ${bytesText(c.bytes)}${c.why ? "; " + shown(c.why) : ""}`);
    key(s, [{ color: "var(--c1)", text: "star: chosen" }, { color: "var(--c0)", text: "circle: fits" }, { color: "var(--faint)", text: "cross: does not fit" }]);
    const reasons = Object.entries(found.reasons ?? {});
    if (reasons.length) s.append("h3").text("Why");
    s.append("ul").selectAll("li").data(reasons).join("li").text(([name, why]) => `${shown(name)}: ${shown(why)}`);
    if (!found.best) s.append("p").attr("id", "nothing-fits").text("Nothing fits." + (!found.closest ? "" : ` ${nameOf(found.closest)} comes closest, with ${bytesText(found.closest.bytes)}` +
      (limit ? ` of ${bytesText(limit)}.` : ".")));
    table(s, all, [
      { name: "Settings", text: (c) => c.name },
      { name: "Step", text: (c) => c.seconds ? secondsText(c.seconds) : "-", value: (c) => c.seconds || Infinity, number: true },
      { name: "Memory", text: (c) => c.bytes ? bytesText(c.bytes) : "-", value: (c) => c.bytes ?? 0, number: true },
      { name: "Fits", text: (c) => c.fits ? "yes" : "no" },
      { name: "Why not", text: (c) => shown(c.why ?? "") },
    ], { name: "candidates" });
  }

  // ---------------------------------------------------------------------------------------------------- two plans

  function compareView() {
    const other = data.other, s = section("compare", "Two plans"), last = data.folders.map((f) => f.replace(/\/+$/, "").split("/").pop());
    const names = (last[0] !== last[1] ? last : data.folders).map(shown);
    const figures = (plan) => {
      const step = plan.simulated_step ?? {}, m = plan.memory_of_rank ?? {};
      return { mesh: plan.mesh.map((d) => `${shown(d.name)}=${d.size}`).join(" "), ranks: plan.ranks, "step, s": step.seconds, "arithmetic, s": step.arithmetic,
        "exposed, s": step.exposed, "idle, s": step.idle, "tokens a second": step.tokens_per_second, MFU: step.mfu,
        ...Object.fromEntries(Object.entries(m).map(([k, v]) => [`memory: ${k}, bytes`, v])) };
    };
    const a = figures(data.plan), b = figures(other.plan), text = (v) => v === undefined ? "-" : typeof v === "number" ? (Number.isInteger(v) ? grouped(v) : three(v)) : v;
    const rows = [...new Set([...Object.keys(a), ...Object.keys(b)])].filter((k) => a[k] !== undefined || b[k] !== undefined)
      .map((name) => ({ name, a: a[name], b: b[name] }));
    const change = (r) => typeof r.a === "number" && typeof r.b === "number" && r.a && r.a !== r.b ? (r.b > r.a ? "+" : "") + (100 * (r.b / r.a - 1)).toFixed(1) + " %" : "";
    table(s, rows, [{ name: "Figure", text: (r) => r.name }, { name: names[0], text: (r) => text(r.a), number: true }, { name: names[1], text: (r) => text(r.b), number: true },
      { name: "Change", text: change, number: true }], { name: "figures", lineClass: (r) => r.a !== r.b ? "differs" : null, filters: false });
    s.append("h3").text("Transfers in a step");
    const groups = new Map();
    [data, other].forEach((side, i) => {
      for (const plan of [side.plan, ...Object.values(side.stages ?? {})])
        for (const c of plan.collectives ?? []) {
          const name = `${c.kind} over ${shown(c.group)}, ${c.phase}`;
          if (!groups.has(name)) groups.set(name, { name, calls: [0, 0], bytes: [0, 0] });
          groups.get(name).calls[i] += c.times;
          groups.get(name).bytes[i] += c.times * c.sent;
        }
    });
    table(s, [...groups.values()], [{ name: "Transfer", text: (r) => r.name }, ...[0, 1].flatMap((i) => [
      { name: names[i] + ": calls", text: (r) => grouped(r.calls[i]), value: (r) => r.calls[i], number: true },
      { name: names[i] + ": sent", text: (r) => bytesText(r.bytes[i]), value: (r) => r.bytes[i], number: true }])],
    { name: "transfers of both", lineClass: (r) => r.calls[0] !== r.calls[1] || r.bytes[0] !== r.bytes[1] ? "differs" : null });
    s.append("h3").text("Placements of parameters");
    const parameters = new Map();
    [data, other].forEach((side, i) => {
      for (const plan of [side.plan, ...Object.values(side.stages ?? {})])
        for (const p of plan.parameters ?? []) {
          if (!parameters.has(p.name)) parameters.set(p.name, { name: p.name, placement: [null, null] });
          parameters.get(p.name).placement[i] = p.placement;
        }
    });
    const place = (p) => p ? placementText(p) : "-";
    table(s, [...parameters.values()], [{ name: "Parameter", text: (r) => shown(r.name) }, { name: names[0], text: (r) => place(r.placement[0]) },
      { name: names[1], text: (r) => place(r.placement[1]) }], { name: "placements", lineClass: (r) => place(r.placement[0]) !== place(r.placement[1]) ? "differs" : null });
  }

  // -------------------------------------------------------------------------------------------------------- a run

  function runView() {
    const s = section("run", "A run");
    const label = s.append("p").append("label").text("A file of run.sh --metrics ");
    const message = s.append("p").attr("role", "status"), at = s.append("div");
    label.append("input").attr("type", "file").attr("accept", ".jsonl,.json,.txt").on("change", function () {
      const file = this.files[0];
      if (!file) return;
      file.text().then((lines) => {
        const rows = [];
        let wrong = 0;
        for (const line of lines.split("\n")) {
          if (!line.trim()) continue;
          try {
            const row = JSON.parse(line);
            if (row && typeof row === "object" && !Array.isArray(row)) rows.push(row);
            else wrong++;
          } catch { wrong++; }
        }
        message.text(`${shown(file.name)}: ${grouped(rows.length)} lines` + (wrong ? `, and ${grouped(wrong)} that are none of a run's` : ""));
        draw(rows);
      });
    });
    function draw(rows) {
      at.selectAll("*").remove();
      const names = [];
      for (const row of rows) for (const [name, value] of Object.entries(row)) if (name !== "step" && typeof value === "number" && !names.includes(name)) names.push(name);
      for (const name of names) {
        const points = rows.filter((r) => typeof r[name] === "number" && typeof r.step === "number").map((r) => [r.step, r[name]]);
        if (!points.length) continue;
        at.append("h3").text(shown(name));
        const picture = svg(at, 170, `${shown(name)} over ${points.length} steps, the last ${three(points[points.length - 1][1])}`);
        const x = d3.scaleLinear().domain(d3.extent(points, (p) => p[0])).range([90, SVG_WIDTH - 20]), y = d3.scaleLinear().domain(d3.extent(points, (p) => p[1])).nice().range([145, 8]);
        picture.append("path").attr("d", d3.line().x((p) => x(p[0])).y((p) => y(p[1]))(points)).attr("fill", "none").attr("stroke", "var(--c0)").attr("stroke-width", 1.5);
        if (points.length < 60) picture.selectAll("circle").data(points).join("circle").attr("cx", (p) => x(p[0])).attr("cy", (p) => y(p[1])).attr("r", 2.5).attr("fill", "var(--c0)")
          .append("title").text((p) => `step ${p[0]}: ${p[1]}`);
        picture.append("g").attr("class", "axis").attr("transform", "translate(0,145)").call(d3.axisBottom(x).ticks(8));
        picture.append("g").attr("class", "axis").attr("transform", "translate(90,0)").call(d3.axisLeft(y).ticks(4));
      }
      const seconds = rows.map((r) => r.seconds ?? r.step_seconds ?? r.time).filter((v) => typeof v === "number" && v > 0).sort(d3.ascending);
      const simulated = data.plan.simulated_step?.seconds;
      if (seconds.length && simulated) at.insert("p", ":first-child").attr("id", "measured").text(
        `Measured step ${secondsText(d3.median(seconds))} in the median, ${secondsText(seconds[0])} at least; simulated ${secondsText(simulated)}: ` +
        `${three(simulated / d3.median(seconds))} of the median.`);
    }
    if (data.metrics) {
      message.text(grouped(data.metrics.length) + " lines");
      draw(data.metrics);
    }
  }

  // ------------------------------------------------------------------------------------------------- all together

  if (data.other) {
    compareView();
    main.append("p").append("strong").text(`All that follows is of ${shown(data.folders[0])}.`);
  }
  if (mesh.length) { // else nothing of a search fits
    stepView();
    meshView();
  }
  const stages = Object.entries(data.stages ?? {});
  if (data.plan.pipeline) {
    stagesView();
    if (data.plan.actions) pipelineTimeline(section("pipeline", "Timeline of the pipeline"), data.plan);
  }
  const of = data.plan.pipeline ? stages : mesh.length ? [["plan.json", data.plan]] : [];
  const views = [["modules", "Modules", moduleView], ["transfers", "Transfers", transferView], ["timeline", "Timeline", stepTimeline], ["memory", "Memory", memoryView]];
  for (const [id, title, view] of of.length ? views : []) {
    const s = section(id, title), at = s.append("div").attr("id", id + "-view");
    if (of.length > 1) {
      const choose = s.insert("p", "div").append("label").text("Stages at ").append("select").attr("aria-label", `${title} of`);
      choose.selectAll("option").data(of).join("option").attr("value", (o, i) => i).text((o) => shown(o[0].replace(/^plan_stage|\.json$/g, "")));
      choose.on("change", () => {
        at.selectAll("*").remove();
        view(at, of[+choose.property("value")][1]);
      });
    }
    view(at, of[0][1]);
  }
  searchView();
  if (mesh.length) runView();
  document.body.dataset.drawn = "yes";
})();
