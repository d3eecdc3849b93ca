/* page.c: report.html: a plan, or two, or a run, to look at in a browser. One file without a
   network.

   Takes   plan.json, those of stages, search.json and a run's metrics: of this program, or of a
           folder that tpgen wrote.
   Leaves  the page. Its numbers are those of the JSON, which is in it; templates/report/report.js
           draws them with d3. The head is text, for readers without scripts.

   Names come from plans and files of other people. As JSON in a script element they have no < of
   their own; as text they are escaped; the page's policy runs only the two scripts whose hashes it
   has. */
#include "report/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST_FILE = 1 << 28 };

/* ----------------------------------------------------------------------------------------- text */

/* For text and for attributes between quotes. */
static char *html(const char *s)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (; *s; s++) {
    const char *as = *s == '<'    ? "&lt;"
                     : *s == '>'  ? "&gt;"
                     : *s == '&'  ? "&amp;"
                     : *s == '"'  ? "&quot;"
                     : *s == '\'' ? "&#39;"
                                  : NULL;
    if (as)
      put(&b, "%s", as);
    else
      put_text(&b, s, 1);
  }
  return b.text;
}

static char *json_in_script(const json_t *data)
{
  struct buffer b = {0};
  const char *s = json_text(data, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY);
  while (*s) {
    const size_t plain = strcspn(s, "<>&");
    put_text(&b, s, plain);
    s += plain;
    if (*s) put(&b, "\\u%04x", (unsigned)*s++);
  }
  return b.text;
}

/* ------------------------------------------------------------------------------------- the head */

const char *string_of(const json_t *object, const char *name)
{
  const char *s = json_string_value(json_object_get(object, name));
  return s ? s : "";
}

double figure_of(const json_t *object, const char *name)
{
  return json_number_value(json_object_get(object, name));
}

double memory_of_plan(const json_t *plan)
{
  double most = figure_of(json_object_get(plan, "memory_of_rank"), "total");
  size_t i;
  const json_t *stage;
  json_array_foreach(json_object_get(json_object_get(plan, "pipeline"), "stages"), i, stage)
  {
    const double bytes = figure_of(stage, "memory_of_rank");
    if (bytes > most) most = bytes;
  }
  return most;
}

static void put_fact(struct buffer *b, const char *what, const char *value)
{
  if (*value) put(b, "    <div><dt>%s</dt><dd>%s</dd></div>\n", html(what), html(value));
}

static double count_parameters(const json_t *plan)
{
  double n = 0;
  size_t i, k;
  const json_t *row, *size;
  json_array_foreach(json_object_get(plan, "parameters"), i, row)
  {
    /* Those of other stages have no element here. */
    const json_t *local =
        json_object_get(json_array_get(json_object_get(row, "local"), 0), "shape");
    double each = figure_of(row, "count"), here = 1;
    json_array_foreach(local, k, size) here *= json_number_value(size);
    if (here == 0) continue;
    json_array_foreach(json_object_get(row, "shape"), k, size) each *= json_number_value(size);
    n += each;
  }
  return n;
}

/* "dp 2 x tp 4" */
static char *mesh_text(const json_t *plan)
{
  struct buffer b = {0};
  size_t i;
  const json_t *row;
  put_text(&b, "", 0);
  json_array_foreach(json_object_get(plan, "mesh"), i, row)
  {
    if (!json_object_get(row, "is_of_microbatches"))
      put(&b, "%s%s %.0f", b.length ? " x " : "", string_of(row, "name"), figure_of(row, "size"));
  }
  return b.text;
}

static char *settings_given(const json_t *plan)
{
  struct buffer b = {0};
  size_t i;
  const json_t *row;
  put_text(&b, "", 0);
  json_array_foreach(json_object_get(plan, "settings"), i, row)
  {
    if (json_is_true(json_object_get(row, "given")))
      put(&b, "%s%s=%s", b.length ? " " : "", string_of(row, "name"), string_of(row, "value"));
  }
  return b.text;
}

/* What the simulated step assumes, beside it. */
static char *assumptions_of(const json_t *plan)
{
  const json_t *machine = json_object_get(plan, "machine"), *link;
  size_t i;
  struct buffer b = {0};
  if (!machine) return "";
  put(&b, "simulated on %s: %s in %s, %s of memory", string_of(machine, "device"),
      scaled_text(figure_of(machine, "flops"), "FLOP/s"), string_of(machine, "arithmetic"),
      scaled_text(figure_of(machine, "bandwidth"), "B/s"));
  json_array_foreach(json_object_get(machine, "links"), i, link)
  {
    const json_t *in_node = json_object_get(link, "in_node");
    put(&b, "; %s over links of %s and %s%s", string_of(link, "dimension"),
        scaled_text(figure_of(link, "bandwidth"), "B/s"), duration_text(figure_of(link, "latency")),
        !in_node                ? ""
        : json_is_true(in_node) ? " within a node"
                                : " between nodes");
  }
  put(&b, ". Not modelled: links that groups share, and ranks of different speed.");
  return b.text;
}

static char *facts_of(const json_t *plan, const json_t *stages)
{
  struct buffer b = {0};
  const json_t *step = json_object_get(plan, "simulated_step"), *stage;
  double parameters = count_parameters(plan);
  const double bytes = memory_of_plan(plan);
  const char *name;
  json_object_foreach((json_t *)stages, name, stage) parameters += count_parameters(stage);
  put_fact(&b, "Plan", string_of(plan, "plan"));
  if (parameters > 0)
    put_fact(&b, "Parameters",
             text("%s%s", grouped((int64_t)parameters),
                  json_object_size(stages) ? " in the stages shown" : ""));
  if (figure_of(plan, "ranks") > 0)
    put_fact(&b, "Ranks", grouped((int64_t)figure_of(plan, "ranks")));
  put_fact(&b, "Mesh", mesh_text(plan));
  put_fact(&b, "Target", string_of(plan, "target"));
  if (step) {
    put_fact(&b, "Simulated step", duration_text(figure_of(step, "seconds")));
    if (figure_of(step, "tokens_per_second") > 0)
      put_fact(&b, "Tokens a second", grouped((int64_t)figure_of(step, "tokens_per_second")));
    if (figure_of(step, "mfu") > 0)
      put_fact(&b, "MFU", text("%.1f %%", 100 * figure_of(step, "mfu")));
  }
  put_fact(&b, "Memory of a rank", bytes > 0 ? size_text((int64_t)bytes) : "");
  const double limit = figure_of(json_object_get(plan, "machine"), "memory");
  if (limit > 0) put_fact(&b, "Memory of a device", size_text((int64_t)limit));
  put_fact(&b, "Settings", settings_given(plan));
  put_fact(&b, "tpgen", string_of(plan, "tpgen"));
  return b.text;
}

/* ------------------------------------------------------------------------------------- the page */

char *page_text(const json_t *data)
{
  const json_t *plan = json_object_get(data, "plan"), *stages = json_object_get(data, "stages");
  const json_t *other = json_object_get(data, "other");
  const char *title = other ? text("%s and %s", string_of(plan, "plan"),
                                   string_of(json_object_get(other, "plan"), "plan"))
                            : string_of(plan, "plan");
  return fill(embedded_template("page.html"), "policy", embedded_template("page_policy.txt"),
              "title", html(title), "facts", facts_of(plan, stages), "assumptions",
              html(assumptions_of(plan)), "style", embedded_template("report.css"), "licence",
              html(embedded_template("d3_licence.txt")), "data", json_in_script(data), "library",
              embedded_template("d3.min.js"), "script", embedded_template("report.js"), NULL);
}

static json_t *read_json_text(const char *shown, const char *text, size_t length)
{
  json_error_t e;
  json_t *read = json_loadb(text, length, JSON_REJECT_DUPLICATES, &e);
  if (!json_is_object(read))
    usage_error(2, "%s: it is not what tpgen writes: %s", shown,
                read ? "the JSON is no object" : e.text);
  return read;
}

/* The names of the stages' files, of the file of a pipeline. */
static void take_stages(json_t *data, json_t *(*read)(const char *from, const char *name),
                        const char *from)
{
  json_t *stages = json_object(), *stage;
  const json_t *plan = json_object_get(data, "plan");
  size_t i;
  json_array_foreach(json_object_get(json_object_get(plan, "pipeline"), "stages"), i, stage)
  {
    const char *name = string_of(stage, "plan");
    json_t *of = strchr(name, '/') || json_object_get(stages, name) ? NULL : read(from, name);
    if (of) json_member(stages, name, of);
  }
  json_member(data, "stages", stages);
  json_t *search = read(from, "search.json");
  if (search) json_member(data, "search", search);
}

static json_t *added_json(const char *from, const char *name)
{
  const struct file *f = find_file(name);
  (void)from;
  return f ? read_json_text(name, f->contents, f->size) : NULL;
}

void add_report_page(void)
{
  if (!options.report) return;
  json_t *plan = added_json(NULL, "plan.json");
  if (!plan) /* nothing of a search fits */
    plan = json_pack("{s:s, s:s, s:s, s:[]}", "plan", printable(options.plan), "tpgen",
                     TPGEN_VERSION, "target", target->name, "mesh");
  json_t *data = json_pack("{s:o}", "plan", plan);
  take_stages(data, added_json, NULL);
  const char *page = page_text(data);
  add_file("report.html", page, strlen(page), false);
}

/* ------------------------------------------------------------------------- of folders and runs */

static json_t *json_of_file(const char *folder, const char *name)
{
  size_t length;
  const char *why, *path = text("%s/%s", folder, name);
  const char *contents = read_file(path, LARGEST_FILE, &length, &why);
  if (contents) return read_json_text(path, contents, length);
  if (errno == ENOENT && strcmp(name, "plan.json")) return NULL;
  usage_error(2, "%s: %s; give a folder that tpgen wrote with -o", path, why);
}

json_t *report_data_of(const char *folder)
{
  json_t *data = json_pack("{s:o}", "plan", json_of_file(folder, "plan.json"));
  take_stages(data, json_of_file, folder);
  return data;
}

json_t *read_metrics(const char *path)
{
  size_t length;
  const char *why, *lines = read_file(path, LARGEST_FILE, &length, &why);
  if (!lines) usage_error(2, "--metrics %s: %s", path, why);
  json_t *list = json_array();
  int line = 1;
  for (const char *c = lines, *end = lines + length; c < end; line++) {
    const char *newline = memchr(c, '\n', (size_t)(end - c));
    const size_t n = (size_t)((newline ? newline : end) - c);
    json_error_t e;
    json_t *row = n ? json_loadb(c, n, 0, &e) : NULL;
    /* A run that was killed may have left half of its last line. */
    if (n && !json_is_object(row) && newline)
      usage_error(2, "%s:%d: it is no line of a run's --metrics: %s", path, line,
                  row ? "it is no object" : e.text);
    if (json_is_object(row)) json_append(list, row);
    c += n + 1;
  }
  return list;
}
