/* measured.c: the figures that the program of tpgen --calibrate has measured of a machine, as its
   device.json has them, and the time that they give for an operation.

   A run is a measurement with so many ranks on the machine at once; a plan takes that with as many
   ranks as it has, or the next smaller one. Between measured sizes a rate is interpolated on
   logarithmic scales, and beyond them it stays what it is at the edge. The file may have been
   written by anybody: all that is read is checked. docs/calibration.md describes it.

   Of CPUs the ranks share the machine, so there is a run for each number of ranks. Of GPUs there is
   one run, with a rank on each: they share only links, and a collective was measured in groups of
   each shape, so many ranks on so many nodes. */
#include "ir/ir.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

enum { MOST_RUNS = 32, MOST_GRIDS = 32, MOST_SIZES = 24, MOST_POINTS = 64, MOST_ROWS = 1024 };
enum { MOST_RANKS_MEASURED = 1 << 20, MOST_SIZE = 1 << 24 };

static const double LEAST_SECONDS = 1e-13, MOST_SECONDS = 1e5, LEAST_RATE = 1e3, MOST_RATE = 1e18;

/* Pairs of bytes, which increase, and a rate or seconds. */
struct curve {
  int n;
  double at[MOST_POINTS], is[MOST_POINTS];
};

/* The rates of products whose rows, columns and terms are each of these sizes. */
struct rate_grid {
  enum arithmetic type;
  char form[3]; /* "nt": whether the operands are stored transposed */
  int n;
  double size[MOST_SIZES];
  double *rate; /* operations a second, by rows, columns and terms */
};

/* Cubes of these sizes, many at once: a batch, or for groups of rows. */
struct rate_of_batch {
  enum arithmetic type;
  char form[3];
  double count;
  struct curve curve; /* the size, and operations a second */
};

struct attention_point {
  enum arithmetic type;
  bool is_back;
  double depth, keys, seconds; /* of a thread, for a tile of queries and keys */
};

struct collective_curve {
  enum op_kind kind;
  int ranks, nodes;
  bool is_bf16;
  struct curve curve; /* bytes, and seconds */
};

struct measured_run {
  int ranks, threads; /* threads: of a GPU the multiprocessors */
  double kernel;      /* seconds of an empty one, among others that are ready to run */
  double launch;      /* of a GPU: seconds of the host for each; 0: not measured */
  struct slower_beside beside;
  struct curve memory[MEMORY_USES];
  double function[ELEMENT_FUNCTIONS]; /* seconds of a thread for an element; 0: not measured */
  int ngrid, nbatch, ngroups, nattention, ncollective;
  struct rate_grid *grid;
  struct rate_of_batch *batch, *groups;
  struct attention_point *attention;
  struct collective_curve *collective;
};

struct measured {
  const char *text; /* the whole, as JSON */
  const char *machine, *host, *when;
  double memory;
  int cores;                /* of CPUs */
  int devices, nodes;       /* of GPUs: of a node, and the nodes */
  int64_t libraries, group; /* bytes that libraries took of a GPU's memory, and each group more */
  double peak[3];           /* by enum arithmetic, from the data sheet; 0: not known */
  int nrun;
  struct measured_run *run;
};

/* ----------------------------------------------------------------------------------- the reader */

static const char *const use_name[MEMORY_USES] = {"read",   "write",     "copy",
                                                  "update", "optimizer", "rows"};
static const char *const function_name[ELEMENT_FUNCTIONS] = {"copy", "add",  "div",  "sqrt", "exp",
                                                             "log",  "sin",  "pow",  "tanh", "erf",
                                                             "sum",  "norm", "gate", "bf16"};
static const char *const arithmetic_word[] = {"float32", "tfloat32", "bfloat16"};

/* The first thing that is wrong, or NULL. */
static const char *wrong;

static void note_wrong(const char *what)
{
  if (!wrong) wrong = what;
}

/* A member, where it must be; its path is the text before it, a point and its name. */
static const json_t *member(const json_t *in, const char *path, const char *name, json_type type)
{
  static const char *const word[] = {[JSON_OBJECT] = "an object",
                                     [JSON_ARRAY] = "a list",
                                     [JSON_STRING] = "a text",
                                     [JSON_REAL] = "a number"};
  const json_t *found = json_object_get(in, name);
  bool fits = type == JSON_REAL ? json_is_number(found) : found && json_typeof(found) == type;
  if (!found)
    note_wrong(text("%s%s is missing", path, name));
  else if (!fits)
    note_wrong(text("%s%s must be %s", path, name, word[type]));
  return found && fits ? found : NULL;
}

/* A number from `least` to `most`. */
static double number_within(const json_t *j, const char *path, double least, double most)
{
  double x = json_is_number(j) ? json_number_value(j) : NAN;
  if (x >= least && x <= most) return x;
  note_wrong(text("%s must be a number from %g to %g", path, least, most));
  return least;
}

/* The same of an item of a list, whose path is written only where it is wrong: lists are long. */
static double item_within(const json_t *list, int i, const char *path, double least, double most)
{
  const json_t *j = json_array_get(list, (size_t)i);
  const double x = json_is_number(j) ? json_number_value(j) : NAN;
  return x >= least && x <= most ? x : number_within(j, text("%s[%d]", path, i), least, most);
}

static double number_member(const json_t *in, const char *path, const char *name, double least,
                            double most)
{
  return number_within(member(in, path, name, JSON_REAL), text("%s%s", path, name), least, most);
}

static int whole_member(const json_t *in, const char *path, const char *name, int most)
{
  double x = number_member(in, path, name, 1, most);
  if (x != floor(x)) note_wrong(text("%s%s must be a whole number", path, name));
  return (int)x;
}

static const char *word_member(const json_t *in, const char *path, const char *name)
{
  enum { MOST = 200 };
  const char *s = json_string_value(member(in, path, name, JSON_STRING));
  if (s && strlen(s) > MOST) note_wrong(text("%s%s is too long", path, name));
  return printable(s ? s : "");
}

/* The length of a list, which is at most `most` long. */
static int length_of(const json_t *list, const char *path, int most)
{
  size_t n = json_array_size(list);
  if (n <= (size_t)most) return (int)n;
  note_wrong(text("%s has more than %d items", path, most));
  return most;
}

static void read_curve(struct curve *c, const json_t *list, const char *path, double least,
                       double most)
{
  c->n = length_of(list, path, MOST_POINTS);
  if (!c->n) note_wrong(text("%s has no items", path));
  for (int i = 0; i < c->n; i++) {
    const json_t *pair = json_array_get(list, (size_t)i);
    const char *here = text("%s[%d]", path, i);
    if (json_array_size(pair) != 2) note_wrong(text("%s must be a pair of numbers", here));
    c->at[i] = number_within(json_array_get(pair, 0), text("%s[0]", here), 1, 1e15);
    c->is[i] = number_within(json_array_get(pair, 1), text("%s[1]", here), least, most);
    if (i && c->at[i] <= c->at[i - 1])
      note_wrong(text("%s must be more than the one before", here));
  }
}

static enum arithmetic type_member(const json_t *in, const char *path)
{
  const char *s = word_member(in, path, "type");
  for (int i = 0; i < 3; i++)
    if (!strcmp(s, arithmetic_word[i])) return (enum arithmetic)i;
  note_wrong(text("%stype must be float32, tfloat32 or bfloat16", path));
  return IN_FLOAT32;
}

static int read_sizes(double size[MOST_SIZES], const json_t *in, const char *path)
{
  const json_t *list = member(in, path, "sizes", JSON_ARRAY);
  int n = length_of(list, text("%ssizes", path), MOST_SIZES);
  if (!n) note_wrong(text("%ssizes has no items", path));
  for (int i = 0; i < n; i++) {
    const char *here = text("%ssizes[%d]", path, i);
    size[i] = number_within(json_array_get(list, (size_t)i), here, 1, MOST_SIZE);
    if (i && size[i] <= size[i - 1]) note_wrong(text("%s must be more than the one before", here));
  }
  return n;
}

/* A list of exactly n seconds. */
static const json_t *seconds_list(const json_t *in, const char *path, int n)
{
  const json_t *list = member(in, path, "seconds", JSON_ARRAY);
  if (list && json_array_size(list) != (size_t)n)
    note_wrong(text("%sseconds must have %d items, not %zu", path, n, json_array_size(list)));
  return list;
}

static void read_form(char form[3], const json_t *in, const char *path)
{
  const char *s = word_member(in, path, "form");
  if (strlen(s) != 2 || strspn(s, "nt") != 2) note_wrong(text("%sform must be as nt", path));
  snprintf(form, 3, "%s", s);
}

static void read_grid(struct rate_grid *g, const json_t *in, const char *path)
{
  g->type = type_member(in, path);
  read_form(g->form, in, path);
  const int n = g->n = read_sizes(g->size, in, path);
  const json_t *list = seconds_list(in, path, n * n * n);
  const char *here = text("%sseconds", path);
  g->rate = alloc((size_t)(n * n * n + 1) * sizeof *g->rate);
  for (int i = 0; i < n * n * n && !wrong; i++) {
    double seconds = item_within(list, i, here, LEAST_SECONDS, MOST_SECONDS);
    g->rate[i] = 2 * g->size[i / n / n] * g->size[i / n % n] * g->size[i % n] / seconds;
  }
}

static void read_cubes(struct rate_of_batch *b, const json_t *in, const char *path,
                       const char *number)
{
  double size[MOST_SIZES], batch = b->count = whole_member(in, path, number, MOST_SIZE);
  b->type = type_member(in, path);
  b->curve.n = read_sizes(size, in, path);
  const json_t *list = seconds_list(in, path, b->curve.n);
  for (int i = 0; i < b->curve.n; i++) {
    double seconds = item_within(list, i, text("%sseconds", path), LEAST_SECONDS, MOST_SECONDS);
    b->curve.at[i] = size[i];
    b->curve.is[i] = 2 * batch * size[i] * size[i] * size[i] / seconds;
  }
}

static void read_batch(struct rate_of_batch *b, const json_t *in, const char *path)
{
  read_cubes(b, in, path, "batch");
}

static void read_groups(struct rate_of_batch *b, const json_t *in, const char *path)
{
  read_cubes(b, in, path, "groups");
  read_form(b->form, in, path);
}

static void read_attention(struct attention_point *a, const json_t *in, const char *path)
{
  const char *pass = word_member(in, path, "pass");
  a->type = type_member(in, path);
  a->is_back = !strcmp(pass, "backward");
  if (!a->is_back && strcmp(pass, "forward"))
    note_wrong(text("%spass must be forward or backward", path));
  a->depth = number_member(in, path, "depth", 1, MOST_SIZE);
  a->keys = number_member(in, path, "keys", 1, MOST_SIZE);
  a->seconds = number_member(in, path, "seconds", LEAST_SECONDS, MOST_SECONDS);
}

static void read_collective(struct collective_curve *c, const json_t *in, const char *path)
{
  static const enum op_kind kinds[] = {OP_all_gather, OP_reduce_scatter, OP_all_reduce,
                                       OP_all_to_all, OP_send};
  const char *kind = word_member(in, path, "kind");
  c->kind = OP_COUNT;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!strcmp(kind, op_row[kinds[i]].name)) c->kind = kinds[i];
  if (c->kind == OP_COUNT)
    note_wrong(
        text("%skind must be all_gather, reduce_scatter, all_reduce, all_to_all or send", path));
  c->ranks = whole_member(in, path, "ranks", MOST_RANKS_MEASURED);
  c->nodes = 1;
  if (target->streams) c->nodes = whole_member(in, path, "nodes", MOST_RANKS_MEASURED);
  if (c->ranks % c->nodes) note_wrong(text("%snodes must divide its ranks", path));
  c->is_bf16 = type_member(in, path) == IN_BFLOAT16;
  read_curve(&c->curve, member(in, path, "points", JSON_ARRAY), text("%spoints", path),
             LEAST_SECONDS, MOST_SECONDS);
}

/* The rows of a list: allocates them, and calls `read` for each. */
#define READ_ROWS(rows, number, in, path, name, most, read)                                        \
  do {                                                                                             \
    const json_t *list_ = member(in, path, name, JSON_ARRAY);                                      \
    number = length_of(list_, text("%s%s", path, name), most);                                     \
    rows = alloc((size_t)(number + 1) * sizeof *(rows));                                           \
    for (int i_ = 0; i_ < number && !wrong; i_++) {                                                \
      const json_t *item_ = json_array_get(list_, (size_t)i_);                                     \
      read(&(rows)[i_], item_, text("%s%s[%d].", path, name, i_));                                 \
    }                                                                                              \
  } while (0)

static void read_beside(struct slower_beside *b, const json_t *in, const char *path)
{
  enum { MOST = 100 };
  if (!in) return;
  b->arithmetic = number_member(in, path, "arithmetic", 1, MOST);
  b->collective = number_member(in, path, "collective", 1, MOST);
}

static void read_run(struct measured_run *r, const json_t *in, const char *path)
{
  r->ranks = whole_member(in, path, "ranks", MOST_RANKS_MEASURED);
  r->threads = whole_member(in, path, target->streams ? "processors" : "threads", MOST_SIZE);
  r->kernel = number_member(in, path, "kernel", LEAST_SECONDS, 1);
  if (target->streams) {
    r->launch = number_member(in, path, "launch", LEAST_SECONDS, 1);
    if (json_object_get(in, "beside"))
      read_beside(&r->beside, member(in, path, "beside", JSON_OBJECT), text("%sbeside.", path));
  }
  const json_t *memory = member(in, path, "memory", JSON_OBJECT);
  const json_t *functions = member(in, path, "functions", JSON_OBJECT);
  for (int i = 0; i < MEMORY_USES && memory; i++) {
    const char *here = text("%smemory.", path);
    if (i == ROW_BYTES && !target->streams) continue;
    read_curve(&r->memory[i], member(memory, here, use_name[i], JSON_ARRAY),
               text("%s%s", here, use_name[i]), LEAST_RATE, MOST_RATE);
  }
  for (int i = 0; i < ELEMENT_FUNCTIONS && functions; i++)
    if (json_object_get(functions, function_name[i]))
      r->function[i] =
          number_member(functions, text("%sfunctions.", path), function_name[i], LEAST_SECONDS, 1);
  READ_ROWS(r->grid, r->ngrid, in, path, "products", MOST_GRIDS, read_grid);
  READ_ROWS(r->batch, r->nbatch, in, path, "batches", MOST_GRIDS, read_batch);
  READ_ROWS(r->groups, r->ngroups, in, path, "groups", MOST_GRIDS, read_groups);
  READ_ROWS(r->attention, r->nattention, in, path, "attention", MOST_ROWS, read_attention);
  READ_ROWS(r->collective, r->ncollective, in, path, "collectives", MOST_ROWS, read_collective);
  if (!r->ngrid) note_wrong(text("%sproducts has no items", path));
}

/* Of GPUs. */
static void read_devices(struct measured *m, const json_t *whole)
{
  static const double MOST_BYTES = 1e15;
  m->devices = whole_member(whole, "", "devices", MOST_RANKS_MEASURED);
  m->nodes = whole_member(whole, "", "nodes", MOST_RANKS_MEASURED);
  m->libraries = (int64_t)number_member(whole, "", "libraries", 0, MOST_BYTES);
  m->group = (int64_t)number_member(whole, "", "group", 0, MOST_BYTES);
  const json_t *peaks = member(whole, "", "peaks", JSON_OBJECT);
  for (int i = 0; i < 3; i++)
    if (json_object_get(peaks, arithmetic_word[i]))
      m->peak[i] = number_member(peaks, "peaks.", arithmetic_word[i], LEAST_RATE, 1e21);
}

/* Its one run has a rank on each device, and its groups are of these. */
static void check_devices(const struct measured *m)
{
  const struct measured_run *r = &m->run[0];
  if (m->nrun > 1) note_wrong("runs has more than 1 item, and ranks on GPUs share none");
  if (r->ranks != (int64_t)m->devices * m->nodes)
    note_wrong(
        text("runs[0].ranks must be devices times nodes, %lld", (long long)m->devices * m->nodes));
  for (int i = 0; i < r->ncollective && !wrong; i++) {
    const struct collective_curve *c = &r->collective[i];
    const char *path = text("runs[0].collectives[%d]", i);
    if (c->nodes > m->nodes || c->ranks / c->nodes > m->devices)
      note_wrong(text("%s has more ranks or nodes than were measured", path));
  }
}

static void read_all(struct measured *m, const json_t *whole)
{
  if (!json_is_object(whole)) note_wrong("it must be an object");
  if (whole_member(whole, "", "version", 1000) != 1) note_wrong("version must be 1");
  if (strcmp(word_member(whole, "", "target"), target->name))
    note_wrong(
        text("target must be %s: it was measured with programs of another target", target->name));
  m->machine = word_member(whole, "", "machine");
  m->host = word_member(whole, "", "host");
  m->when = word_member(whole, "", "measured");
  if (target->streams)
    read_devices(m, whole);
  else
    m->cores = whole_member(whole, "", "cores", MOST_RANKS_MEASURED);
  m->memory = number_member(whole, "", "memory", 1, 1e18);
  READ_ROWS(m->run, m->nrun, whole, "", "runs", MOST_RUNS, read_run);
  if (!m->nrun) note_wrong("runs has no items");
  for (int i = 1; i < m->nrun && !wrong; i++)
    if (m->run[i].ranks <= m->run[i - 1].ranks)
      note_wrong(text("runs[%d].ranks must be more than that of the run before", i));
  if (target->streams && !wrong) check_devices(m);
}

const struct measured *read_measured(const char *json, size_t length, const char **why)
{
  json_error_t error;
  json_t *whole = json_loadb(json, length, JSON_REJECT_DUPLICATES, &error);
  struct measured *m = alloc(sizeof *m);
  wrong = NULL;
  if (whole)
    read_all(m, whole);
  else
    wrong = text("line %d is not JSON: %s", error.line, printable(error.text));
  if (!wrong) m->text = json_text(whole, JSON_COMPACT | JSON_SORT_KEYS);
  json_decref(whole);
  *why = wrong;
  return wrong ? NULL : m;
}

/* ------------------------------------------------------------------------------------ questions */

const char *measured_text(const struct measured *m)
{
  return m->text;
}

int measured_cores(const struct measured *m)
{
  return m->cores;
}

double measured_memory_size(const struct measured *m)
{
  return m->memory;
}

const char *measured_machine(const struct measured *m)
{
  return m->machine;
}

const char *measured_when(const struct measured *m)
{
  return m->when;
}

struct link measured_gather_link(const struct measured *m)
{
  const struct measured_run *r = &m->run[m->nrun - 1];
  struct link link = {10e9, 1e-6};
  for (int i = 0; i < r->ncollective; i++) {
    const struct collective_curve *c = &r->collective[i];
    const int last = c->curve.n - 1;
    if (c->kind != OP_all_gather || c->is_bf16) continue;
    link = (struct link){c->curve.at[last] / c->curve.is[last], c->curve.is[0]};
  }
  return link;
}

/* The run for a plan of so many ranks. */
static const struct measured_run *run_of(const struct measured *m)
{
  int best = 0; /* of GPUs there is one */
  for (int i = 0; i < m->nrun; i++)
    if (m->run[i].ranks <= world_size()) best = i;
  return &m->run[best];
}

static const struct measured_run *run_here(void)
{
  return run_of(graph->mesh.device.measured);
}

/* How much slower a rank is where ranks share cores. */
static double crowding(void)
{
  const struct measured *m = graph->mesh.device.measured;
  const struct measured_run *r = run_of(m);
  bool has_more = r == &m->run[m->nrun - 1] && world_size() > m->cores && !target->streams;
  return has_more ? (double)world_size() / m->cores : 1;
}

bool is_measured(void)
{
  return graph->mesh.device.measured;
}

int measured_threads(void)
{
  return run_here()->threads;
}

double measured_kernel(void)
{
  return run_here()->kernel * crowding();
}

double measured_launch(void)
{
  return run_here()->launch;
}

struct slower_beside measured_beside(void)
{
  return run_here()->beside;
}

/* The position of x among n that increase: *low of them, and the part of the way to the next. */
static double position(const double *at, int n, double x, int *low)
{
  *low = 0;
  if (n == 1 || x <= at[0]) return 0;
  while (*low < n - 2 && at[*low + 1] < x) ++*low;
  double part = log(x / at[*low]) / log(at[*low + 1] / at[*low]);
  return part > 1 ? 1 : part;
}

static double rate_on(const struct curve *c, double x)
{
  int low;
  double part = position(c->at, c->n, x, &low);
  return c->n == 1 ? c->is[0] : exp(log(c->is[low]) * (1 - part) + log(c->is[low + 1]) * part);
}

double measured_memory(enum memory_use use, double bytes, double reach)
{
  return bytes / rate_on(&run_here()->memory[use], reach) * crowding();
}

double measured_function(enum element_function_kind f, double elements)
{
  return run_here()->function[f] * elements * crowding();
}

static double rate_in_grid(const struct rate_grid *g, double m, double n, double k)
{
  const double size[] = {m, n, k};
  int low[3];
  double part[3], sum = 0;
  for (int i = 0; i < 3; i++) part[i] = position(g->size, g->n, size[i], &low[i]);
  for (int corner = 0; corner < 8; corner++) {
    double weight = 1;
    int at = 0;
    for (int i = 0; i < 3; i++) {
      const bool up = corner >> i & 1;
      weight *= up ? part[i] : 1 - part[i];
      at = at * g->n + (low[i] + up < g->n ? low[i] + up : low[i]);
    }
    if (weight > 0) sum += weight * log(g->rate[at]);
  }
  return exp(sum);
}

/* The grid of this type and form; else one of the type; else one of the form. */
static const struct rate_grid *grid_of(const struct measured_run *r, enum arithmetic type,
                                       const char *form)
{
  const struct rate_grid *best = &r->grid[0];
  int best_fit = -1;
  for (int i = 0; i < r->ngrid; i++) {
    const struct rate_grid *g = &r->grid[i];
    int fit = 2 * (g->type == type) + !strcmp(g->form, form);
    if (fit > best_fit) best = g, best_fit = fit;
  }
  return best;
}

double measured_product(const struct measured_product *p)
{
  const struct measured_run *r = run_here();
  const struct rate_grid *g = grid_of(r, p->type, p->form);
  const double all = 2 * p->rows * p->columns * p->terms;
  if (all <= 0) return 0;
  double rate = rate_in_grid(g, p->rows, p->columns, p->terms);
  if (p->count > 1) {
    /* Of those that are measured a batch of cubes, beside a cube. */
    const double side = cbrt(p->rows * p->columns * p->terms);
    for (int i = 0; i < r->nbatch; i++)
      if (r->batch[i].type == g->type)
        rate *= fmax(1, rate_on(&r->batch[i].curve, side) / rate_in_grid(g, side, side, side));
  }
  return p->count * all / rate * crowding();
}

double measured_groups(const struct measured_product *p)
{
  const struct measured_run *r = run_here();
  const struct rate_grid *g = grid_of(r, p->type, p->form);
  const double side = cbrt(p->rows * p->columns * p->terms);
  const double all = 2 * p->count * p->rows * p->columns * p->terms;
  const struct rate_of_batch *best = NULL;
  double best_fit = INFINITY;
  for (int i = 0; i < r->ngroups; i++) {
    const struct rate_of_batch *b = &r->groups[i];
    if (b->type != g->type || strcmp(b->form, p->form)) continue;
    const double fit = fabs(log(b->count / p->count));
    if (fit < best_fit) best = b, best_fit = fit;
  }
  if (all <= 0) return 0;
  double rate = rate_in_grid(g, p->rows, p->columns, p->terms);
  if (best) rate *= rate_on(&best->curve, side) / rate_in_grid(g, side, side, side);
  return all / rate * crowding();
}

double measured_attention(const struct measured_attention *a)
{
  const struct measured_run *r = run_here();
  /* Between the two nearest of the measured head sizes, and there of the lengths. */
  double sum = 0, weights = 0;
  for (int i = 0; i < r->nattention; i++) {
    const struct attention_point *p = &r->attention[i];
    if (p->type != a->type || p->is_back != a->is_back) continue;
    double depth_low = 0, depth_high = INFINITY, keys_low = 0, keys_high = INFINITY;
    for (int k = 0; k < r->nattention; k++) {
      const struct attention_point *q = &r->attention[k];
      if (q->type != a->type || q->is_back != a->is_back) continue;
      if (q->depth <= a->depth) depth_low = fmax(depth_low, q->depth);
      if (q->depth >= a->depth) depth_high = fmin(depth_high, q->depth);
      if (q->keys <= a->keys) keys_low = fmax(keys_low, q->keys);
      if (q->keys >= a->keys) keys_high = fmin(keys_high, q->keys);
    }
    if (depth_low == 0) depth_low = depth_high;
    if (isinf(depth_high)) depth_high = depth_low;
    if (keys_low == 0) keys_low = keys_high;
    if (isinf(keys_high)) keys_high = keys_low;
    double weight = 1;
    const double low[] = {depth_low, keys_low}, high[] = {depth_high, keys_high};
    const double at[] = {p->depth, p->keys}, is[] = {a->depth, a->keys};
    for (int k = 0; k < 2; k++) {
      double part = high[k] > low[k] ? log(is[k] / low[k]) / log(high[k] / low[k]) : 0;
      weight *= at[k] == low[k] ? (high[k] > low[k] ? 1 - part : 1) : at[k] == high[k] ? part : 0;
    }
    sum += weight * log(p->seconds / p->depth);
    weights += weight;
  }
  if (weights <= 0) return -1;
  return exp(sum / weights) * a->depth * a->tiles * crowding();
}

/* The curve of the nearest group that was measured: within a node, or over nodes, as this one. */
static const struct collective_curve *curve_of(const struct measured *m, enum op_kind kind,
                                               const struct group_spread *group, bool is_bf16)
{
  const struct measured_run *r = run_of(m);
  const struct collective_curve *best = NULL;
  double best_fit = INFINITY;
  for (int i = 0; i < r->ncollective; i++) {
    const struct collective_curve *c = &r->collective[i];
    if (c->kind != kind || (c->nodes > 1) != (group->nodes > 1)) continue;
    const double fit = 2 * fabs(log((double)group->members / c->ranks)) +
                       2 * fabs(log((double)group->nodes / c->nodes)) + (c->is_bf16 != is_bf16);
    if (fit < best_fit) best = c, best_fit = fit;
  }
  return best;
}

bool measured_group(enum op_kind kind, const struct group_spread *group,
                    struct group_spread *nearest)
{
  const struct collective_curve *c = curve_of(graph->mesh.device.measured, kind, group, false);
  if (!c) return false;
  *nearest = (struct group_spread){c->ranks, c->nodes, c->ranks / c->nodes};
  return true;
}

/* At more bytes than were measured at the rate of the most. */
static double seconds_on(const struct curve *c, double bytes)
{
  const double most = c->at[c->n - 1];
  if (bytes <= 0) return c->is[0];
  return bytes > most ? c->is[c->n - 1] * bytes / most : rate_on(c, bytes);
}

double measured_collective(enum op_kind kind, const struct group_spread *group, double bytes,
                           bool is_bf16)
{
  const struct collective_curve *c = curve_of(graph->mesh.device.measured, kind, group, is_bf16);
  return c ? seconds_on(&c->curve, bytes) * crowding() : -1;
}

/* The bytes that a rank sends to others of so many bytes. */
static double part_sent(const struct collective_curve *c)
{
  const double n = c->ranks;
  return c->kind == OP_send ? 1 : collective_row[c->kind].passes * (n - 1) / n;
}

double measured_fastest(void)
{
  const struct measured_run *r = run_here();
  double most = 0;
  for (int i = 0; i < r->ncollective; i++)
    for (int k = 0; k < r->collective[i].curve.n; k++) {
      const struct collective_curve *c = &r->collective[i];
      most = fmax(most, part_sent(c) * c->curve.at[k] / c->curve.is[k]);
    }
  return most;
}

double measured_shortest(void)
{
  const struct measured_run *r = run_here();
  double least = INFINITY;
  for (int i = 0; i < r->ncollective; i++) least = fmin(least, r->collective[i].curve.is[0]);
  return least;
}

double measured_bus(const struct measured *m, bool over_nodes)
{
  const struct group_spread within = {m->devices, 1, m->devices}, across = {m->nodes, m->nodes, 1};
  if (over_nodes && m->nodes == 1) return 0;
  const struct collective_curve *c =
      curve_of(m, OP_all_gather, over_nodes ? &across : &within, false);
  if (!c) return 0;
  const struct curve *points = &c->curve;
  return part_sent(c) * points->at[points->n - 1] / points->is[points->n - 1];
}

int measured_devices(const struct measured *m)
{
  return m->devices;
}

int measured_gpus(const struct measured *m)
{
  return m->devices * m->nodes;
}

int64_t measured_bytes(const struct measured *m)
{
  return target->streams ? (int64_t)m->memory : 0;
}

int64_t measured_reserve(int groups)
{
  const struct measured *m = graph->mesh.device.measured;
  return m->libraries + (groups > 1 ? groups - 1 : 0) * m->group;
}

double measured_peak(const struct measured *m, enum arithmetic type)
{
  return m->peak[type];
}

void put_measured(struct buffer *b)
{
  const struct measured *m = graph->mesh.device.measured;
  const struct measured_run *r = run_of(m);
  if (target->streams) {
    put(b, "  measured on %s (%s), %s, %d node%s of %d device%s\n", m->host, m->machine, m->when,
        m->nodes, m->nodes > 1 ? "s" : "", m->devices, m->devices > 1 ? "s" : "");
    return;
  }
  put(b, "  measured on %s (%s), %s, %d cores: with %d rank%s of %d thread%s\n", m->host,
      m->machine, m->when, m->cores, r->ranks, r->ranks > 1 ? "s" : "", r->threads,
      r->threads > 1 ? "s" : "");
  if (crowding() > 1)
    put(b, "  this plan has %d ranks: each is taken to be %.1f times as slow\n", world_size(),
        crowding());
}

/* Its peaks are the best rates that were measured. */
struct device measured_device(const struct measured *m)
{
  struct device d = {.name = m->machine,
                     .products = 1,
                     .attention = 1,
                     .attention_back = 1,
                     .streaming = 1,
                     .measured = m};
  for (int i = 0; i < m->nrun; i++) {
    const struct measured_run *r = &m->run[i];
    for (int k = 0; k < r->ngrid; k++)
      for (int at = 0; at < r->grid[k].n * r->grid[k].n * r->grid[k].n; at++)
        d.flops[r->grid[k].type] = fmax(d.flops[r->grid[k].type], r->grid[k].rate[at]);
    const struct curve *copies = &r->memory[COPIED_BYTES];
    d.bandwidth = fmax(d.bandwidth, copies->is[copies->n - 1]);
  }
  for (int i = 0; i < 3; i++)
    if (d.flops[i] == 0) d.flops[i] = d.flops[i == IN_TFLOAT32 ? IN_FLOAT32 : IN_TFLOAT32];
  for (int i = 0; i < 3; i++)
    if (d.flops[i] == 0) d.flops[i] = d.flops[IN_BFLOAT16];
  return d;
}
