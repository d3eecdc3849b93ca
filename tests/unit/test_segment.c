/* The tables for the copies of packed segments: each rank's, read according to
   runtime/base/segments.h, with elements that are the numbers of the elements of the whole. A
   gather from all chunks gives the whole values, each element in its place; a scatter has each
   rank's chunk in its place, the same on all ranks, with zeros as padding; sums return to their
   values. Parts are padded, empty, or not contiguous in the whole. */
#include "driver/driver.h"
#include "unit.h"

enum { MOST_ROWS = 64, NOTHING = -1 };

/* A row of a table: of which value, from which element on. */
struct row {
  char name[128];
  long long first, bytes, place, parts, rows, run, of;
  bool zeros, steps; /* steps: its rows are of the modules of a list */
};
struct table {
  char at[256]; /* where it begins in memory */
  long long chunk;
  int n;
  struct row row[MOST_ROWS];
};

static struct row read_row(const char *line)
{
  struct row r = {.steps = strstr(line, "sizeof")};
  int n = sscanf(line, " {%127[^,], %lld, %lld, %lld, %lld, %lld, %lld", r.name, &r.bytes, &r.place,
                 &r.parts, &r.rows, &r.run, &r.of);
  must(n == 7 || (n == 6 && r.steps), "%s", line);
  char *plus = strstr(r.name, " + ");
  if (plus) r.first = atoll(plus + 3), *plus = 0;
  r.zeros = !strcmp(r.name, "NULL");
  return r;
}

/* The table of a text; n 0: nothing is copied. */
static struct table read_table(const char *text, const char *call)
{
  struct table t = {0};
  if (!strstr(text, call)) return t;
  long long bytes, stated;
  for (const char *line = text; (line = strstr(line, "\n        {")); line++) {
    must(t.n < MOST_ROWS, "a long table");
    t.row[t.n++] = read_row(line + 1);
  }
  must(sscanf(strstr(text, call) + strlen(call),
              "(%255[^,], /* bytes */ %lld, /* chunk */ %lld, %lld, segment)", t.at, &bytes,
              &t.chunk, &stated) == 4 &&
           stated == t.n,
       "%s", text);
  return t;
}

/* "x + 12L * rank->coordinate[0]": how far behind x that is on the rank. */
static long long offset_on(const char *at, int rank)
{
  int coordinate[MAX_MESH], dim;
  long long sum = 0, each;
  coordinate_of(rank, coordinate);
  while ((at = strstr(at, " + "))) {
    must(sscanf(at, " + %lldL * rank->coordinate[%d]", &each, &dim) == 2, "%s", at);
    sum += each * coordinate[dim];
    at += 3;
  }
  return sum;
}

/* ------------------------------------------------------------------------------ what is where */

/* Where what is given is copied, and what is got: where it is awaited, if not where it stands. */
static const struct function *begins_in, *ends_in;

static void name_on(int rank, bool in)
{
  name_values(rank);
  name_locals(in ? begins_in : ends_in);
}

static void find_functions(int begins, int id)
{
  begins_in = ends_in = &graph->function[begins];
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      if (op->kind == OP_await && op->awaits == id) ends_in = &graph->function[i];
    }
}

static int value_of(const struct op *op, int k, bool in)
{
  const struct op *m = &graph->op[op->body[k]];
  return in ? m->in[0] : m->out;
}

/* Which element of the whole stands at each place of a rank's part in memory, and of which member.
 */
static long long *identities(const struct op *op, int k, bool in, int rank)
{
  int value = value_of(op, k, in), coordinate[MAX_MESH];
  const struct value *v = &graph->value[value];
  coordinate_of(rank, coordinate);
  struct part here = local_part(&graph->mesh, v->shape, v->layout, coordinate);
  int64_t n = elements(here.shape), stride[MAX_DIMS], index[MAX_DIMS] = {0};
  long long *id = alloc((size_t)(n + 1) * sizeof *id);
  local_strides(value, rank, stride);
  for (int64_t i = 0; i < n; i++) {
    long long which = 0, at = 0;
    for (int d = 0; d < here.shape.ndim; d++) {
      which = which * v->shape.size[d] + here.first[d] + index[d];
      at += index[d] * stride[d];
    }
    id[at] = which * 64 + k;
    for (int d = here.shape.ndim; d-- > 0 && ++index[d] == here.shape.size[d];) index[d] = 0;
  }
  return id;
}

/* Whether the pointer is to this member: "m->w.up", "(float *)run_from(m->w.up)", "(float *)&m->w"
   where it is the first of that struct that is asked, or "m->w.up_down" where it is that of a
   union.
 */
static bool points_to(const char *pointer, const char *member)
{
  const char *run = strstr(pointer, "run_from("), *all = strstr(pointer, "*)&");
  if (run) pointer = text("%.*s", (int)strcspn(run + 9, ")"), run + 9);
  const char *word = strrchr(pointer, '.');
  if (!all && word && !strncmp(pointer, member, (size_t)(++word - pointer))) {
    const char *child = member + (word - pointer);
    size_t length = strcspn(child, ".");
    if (!strncmp(word, child, length) && word[length] == '_') return true;
  }
  if (!all) return !strcmp(pointer, member);
  size_t n = strlen(all + 3);
  return !strncmp(all + 3, member, n) && member[n] == '.';
}

/* Whose part, or whole, a row is of. */
static int member_named(const struct op *op, const char *name, bool in)
{
  for (int k = 0; k < op->nbody; k++) {
    const char *its = c_name(value_of(op, k, in));
    if (its && points_to(name, its)) return k;
  }
  give_up("no member is called %s", name);
  return NONE;
}

static int64_t size_on(const struct op *op, int k, bool in, int rank)
{
  return elements(local_shape(value_of(op, k, in), rank));
}

/* A rank's copy into a buffer of so many elements, or out of it; of each member which elements it
   has, and which of them have been copied. */
struct copying {
  const struct op *op;
  int rank;
  bool in;
  long long *buffer, size, **is;
  bool **copied;
};

/* The next module's name: "m->grad.layers[1].norm" for "m->grad.layers[0].norm". */
static const char *name_of_row(const struct row *r, long long row)
{
  const char *bracket = strchr(r->name, '[');
  if (!r->steps) return r->name;
  must(bracket, "%s is of no list", r->name);
  return text("%.*s[%lld%s", (int)(bracket - r->name), r->name, atoll(bracket + 1) + row,
              strchr(bracket, ']'));
}

static void put_zero(const struct copying *c, long long there)
{
  must(c->in && there < c->size && c->buffer[there] == NOTHING, "a zero in the place of something");
  c->buffer[there] = 0;
}

/* Element `here` of member k, or of what lies behind it in memory. */
static void copy_element(const struct copying *c, int k, long long here, long long there)
{
  for (; here >= size_on(c->op, k, c->in, c->rank); k++) {
    here -= size_on(c->op, k, c->in, c->rank);
    must(k + 1 < c->op->nbody, "a run beyond the members");
  }
  must(there >= 0 && there < c->size, "an element beyond the buffer");
  must(!c->copied[k][here], "an element is copied twice");
  long long *to = &c->buffer[there], is = c->is[k][here];
  must(!c->in || *to == NOTHING, "two elements in one place");
  must(c->in || *to == is, "rank %d: element %lld of member %d is %lld, not %lld", c->rank, here, k,
       *to, is);
  if (c->in) *to = is;
  c->copied[k][here] = true;
}

static void copy_row(const struct copying *c, const struct row *r, long long part, long long row,
                     long long there)
{
  int k = r->zeros ? NONE : member_named(c->op, name_of_row(r, row), c->in);
  must(r->zeros || r->bytes == type_bytes(graph->value[value_of(c->op, k, c->in)].type),
       "%s has no elements of %lld bytes", r->name, r->bytes);
  long long here = r->first + (r->steps ? 0 : row * r->of) + part * r->run;
  for (long long i = 0; i < r->run; i++)
    if (r->zeros)
      put_zero(c, there + i);
    else
      copy_element(c, k, here + i, there + i);
}

/* Follows the table. All of the members' elements are copied, each once. */
static void follow(struct copying c, const struct table *t)
{
  int members = c.op->nbody;
  c.is = alloc((size_t)members * sizeof *c.is);
  c.copied = alloc((size_t)members * sizeof *c.copied);
  for (int k = 0; k < members; k++) {
    c.is[k] = identities(c.op, k, c.in, c.rank);
    c.copied[k] = alloc((size_t)size_on(c.op, k, c.in, c.rank) + 1);
  }
  for (const struct row *r = t->row; r < t->row + t->n; r++)
    for (long long part = 0; part < r->parts; part++)
      for (long long row = 0; row < r->rows; row++)
        copy_row(&c, r, part, row, part * t->chunk + r->place + row * r->run);
  for (int k = 0; k < members; k++)
    for (int64_t i = 0; i < size_on(c.op, k, c.in, c.rank); i++)
      must(c.copied[k][i], "rank %d: element %" PRId64 " of member %d is left out", c.rank, i, k);
}

/* ---------------------------------------------------------------------------- the collectives */

static long long *nothing(long long n)
{
  long long *b = alloc((size_t)(n + 1) * sizeof *b);
  for (long long i = 0; i < n; i++) b[i] = NOTHING;
  return b;
}

/* A rank's part of each member where a chunk has it: where it lies so already, or is copied to. */
static void follow_own(struct copying c, const char *text, const char *call)
{
  struct table t = read_table(text, call);
  if (t.n) {
    follow(c, &t);
    return;
  }
  for (int k = 0; k < c.op->nbody; k++) {
    must(graph->value[value_of(c.op, k, c.in)].type == graph->value[c.op->buffer].type,
         "what lies as the chunk has another type");
    long long *is = identities(c.op, k, c.in, c.rank), *there = c.buffer + bucket_chunk(c.op, k);
    for (int64_t i = 0; i < size_on(c.op, k, c.in, c.rank); i++) {
      must(c.in || there[i] == is[i], "what lies as the chunk lies otherwise");
      there[i] = is[i];
    }
  }
}

/* What the group's ranks give, one chunk after the other, is what each unpacks. */
static void check_gather(const struct op *op, int rank)
{
  int members[64], n = group_members(op->group, rank, members);
  long long chunk = bucket_chunk(op, op->nbody), *all = nothing(n * chunk);
  for (int r = 0; r < n; r++) {
    name_on(members[r], true);
    const char *text = copies_in_text(op, members[r]);
    struct copying c = {
        .op = op, .rank = members[r], .in = true, .buffer = all + r * chunk, .size = chunk};
    struct table t = read_table(text, "pack_segments");
    must(!t.n || offset_on(t.at, members[r]) == r * chunk, "%s is not chunk %d", t.at, r);
    must(offset_on(own_chunk_text(op), members[r]) == r * chunk, "another chunk is its own");
    follow_own(c, text, "pack_segments");
  }
  name_on(rank, false);
  struct table t = read_table(copies_out_text(op, rank), "unpack_segments");
  must(t.chunk == chunk && !strcmp(t.at, c_name(op->buffer)), "out of %s", t.at);
  follow((struct copying){.op = op, .rank = rank, .in = false, .buffer = all, .size = n * chunk},
         &t);
}

/* Every rank has the same element, or a zero, in one place of its buffer; of the sums each takes
   its chunk. */
static void check_scatter(const struct op *op, int rank)
{
  int members[64], n = group_members(op->group, rank, members);
  long long chunk = bucket_chunk(op, op->nbody), *first = NULL;
  for (int r = 0; r < n; r++) {
    name_on(members[r], true);
    struct table t = read_table(copies_in_text(op, members[r]), "pack_segments");
    long long *all = nothing(n * chunk);
    must(t.chunk == chunk && !strcmp(t.at, c_name(op->buffer)), "into %s", t.at);
    follow(
        (struct copying){
            .op = op, .rank = members[r], .in = true, .buffer = all, .size = n * chunk},
        &t);
    if (!first) first = all;
    for (long long i = 0; i < n * chunk; i++)
      must(all[i] == first[i] && all[i] != NOTHING, "ranks sum other elements at %lld", i);
  }
  name_on(rank, false);
  long long begin = place_in_group(op->group, rank) * chunk;
  struct copying c = {.op = op, .rank = rank, .buffer = first + begin, .size = chunk};
  follow_own(c, copies_out_text(op, rank), "unpack_segments");
}

static void check_sum(const struct op *op, int rank)
{
  long long size = elements(graph->value[op->buffer].shape), *all = nothing(size);
  name_on(rank, true);
  struct table in = read_table(copies_in_text(op, rank), "pack_segments");
  follow((struct copying){.op = op, .rank = rank, .in = true, .buffer = all, .size = size}, &in);
  name_on(rank, false);
  struct table out = read_table(copies_out_text(op, rank), "unpack_segments");
  follow((struct copying){.op = op, .rank = rank, .in = false, .buffer = all, .size = size}, &out);
}

/* ---------------------------------------------------------------------------------- the plans */

struct plan {
  bool cuda;
  const char *said[16];        /* definitions, name and value by turns */
  int gathers, scatters, sums; /* how many there are, at the least */
};

static void compile(const struct plan *p)
{
  static struct definition list[8];
  for (int i = 0; i < 8 && p->said[2 * i]; i++)
    list[options.ndefinition++] = (struct definition){p->said[2 * i], p->said[2 * i + 1]};
  options.definition = list;
  options.plan = "plans/llama3.lua";
  set_target(p->cuda ? "cuda" : "cpu");
  graph_open();
  run_until(PASS_MEMORY);
}

static void check_all(const void *with)
{
  const struct plan *p = with;
  int found[3] = {0};
  compile(p);
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      if (!op->packed || lies_in_buffer(op)) continue;
      find_functions(i, graph->function[i].op[k]);
      bool gathers = op->kind == OP_all_gather, scatters = op->kind == OP_reduce_scatter;
      found[gathers ? 0 : scatters ? 1 : 2]++;
      for (int rank = 0; rank < world_size(); rank++)
        (gathers ? check_gather : scatters ? check_scatter : check_sum)(op, rank);
    }
  must(found[0] >= p->gathers && found[1] >= p->scatters && found[2] >= p->sums,
       "only %d gathers, %d scatters, %d sums", found[0], found[1], found[2]);
}

#define SMALL "dim", "24", "n_heads", "4", "n_kv_heads", "2", "hidden", "20", "vocab", "34"

static void test_tables(void **state)
{
  (void)state;
  static const struct plan plans[] = {
      {false, {SMALL, "dp_shard", "2"}, 2, 2, 0},
      {false, {SMALL, "dp_shard", "5"}, 2, 2, 0},
      {true, {SMALL, "dp_shard", "5", "dtype", "bfloat16"}, 2, 2, 0},
      {true, {SMALL, "dp_shard", "2", "dtype", "bfloat16"}, 2, 2, 0},
      {true, {SMALL, "dp_replicate", "2", "dp_shard", "3"}, 2, 2, 0},
      {false, {SMALL, "dp_shard", "3", "tp", "2"}, 2, 2, 0},
      {false, {SMALL, "tp", "2"}, 0, 0, 1},
      {false, {SMALL, "dp_shard", "4", "reshard_after_forward", "2"}, 2, 2, 0},
  };
  for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) passes(check_all, &plans[i]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_tables)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
