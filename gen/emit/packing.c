/* packing.c: the text of the copies into and out of the buffer of a packed collective.

   Takes   a packed collective (bucket.c), every value in its place.
   Leaves  the statements around its call: tables of copies (runtime/base/segments.h), with sizes
           and offsets as literals. Members that are adjacent in memory are one run; runs of the
           modules of a list, all of one length, are the rows of one segment.

   The buffer of a gather or a scatter has a chunk for each rank of the group. In a chunk the parts
   of the members follow one another, each with room for the largest part of any rank, so that
   chunks have one size. A rank's own chunk is the one of its place in the group. A gather needs no
   copy if the parameters are adjacent as in the chunk, nor does a scatter if the gradients are.
   Padding in a chunk that is reduced is zero. */
#include "emit/emit.h"

#include <inttypes.h>
#include <string.h>

/* One copy; see runtime/base/segments.h. */
struct segment {
  const char *at;
  enum type type;
  int64_t place, parts, rows, run;
  const char *of;
};

/* ------------------------------------------------------------------------------ one run of each */

/* Whether the gradient of the k-th member directly follows that of the one before. */
static bool follows_segment(const struct op *op, int k)
{
  const struct value *a = &graph->value[bucket_member(op, k - 1)->out];
  const struct value *b = &graph->value[bucket_member(op, k)->out];
  return a->role == GRADIENT && b->role == GRADIENT && is_next_parameter(a->of, b->of) &&
         same_place(bucket_member(op, k - 1)->in[0], bucket_member(op, k - 1)->out) &&
         same_place(bucket_member(op, k)->in[0], bucket_member(op, k)->out);
}

/* The members from the k-th on that are adjacent; returns their number. */
static int find_run(const struct op *op, int k, int rank, bool in, struct segment *p)
{
  int n = 0;
  int first = NONE;
  *p = (struct segment){.at = NULL, .parts = 1, .rows = 1};
  do {
    int value = in ? bucket_member(op, k + n)->in[0] : bucket_member(op, k + n)->out;
    if (!p->at) first = value, p->at = c_name(value);
    p->type = graph->value[value].type;
    p->run += elements_of_rank(value, rank);
    n++;
  } while (k + n < op->nbody && follows_segment(op, k + n));
  p->of = text("%" PRId64, p->run);
  if (p->at) p->at = member_run(first, p->at, p->run);
  return n;
}

/* "m->grad.layers[" and the number, of "m->grad.layers[3].norm.weight"; NONE without a number. */
static int number_in(const char *name, size_t *before)
{
  const char *bracket = name ? strchr(name, '[') : NULL;
  int number;
  if (!bracket || sscanf(bracket, "[%d]", &number) != 1) return NONE;
  *before = (size_t)(bracket - name);
  return number;
}

/* Adds the run of the next module as a row, if it is one. */
static bool add_segment_row(struct segment *p, const struct segment *next)
{
  size_t at = 0, there = 0;
  if (!p->at || !next->at || p->run != next->run || p->type != next->type) return false;
  /* Whether the run has the name of the last row in the next module of the list. */
  int first = number_in(p->at, &at), second = number_in(next->at, &there);
  bool is_next = first != NONE && second == first + p->rows && at == there &&
                 !strncmp(p->at, next->at, at) &&
                 !strcmp(strchr(p->at, ']'), strchr(next->at, ']'));
  if (!is_next) return false;
  const char *from = strstr(p->at, "m->"); /* may come after a cast */
  int length = (int)(p->at + at - from);
  p->of = text("sizeof %.*s[0] / %" PRId64, length, from, type_bytes(p->type));
  p->rows++;
  return true;
}

/* --------------------------------------------------------------------------------------- tables */

static void put_segment(struct buffer *b, const struct segment *p)
{
  if (!p->parts || !p->rows || !p->run) return;
  put(b, "\n        {%s, %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 ", %s},",
      p->at, type_bytes(p->type), p->place, p->parts, p->rows, p->run, p->of);
}

/* Sizes of the ranks' parts of a member along its dimension and, in memory, the number of rows
   that hold parts side by side, and the elements in one place of the dimension. */
struct spread {
  int64_t *size, rows, inner, all;
};

static struct spread spread_of(const struct op *op, int k, int rank)
{
  const struct op *m = bucket_member(op, k);
  int part = sharded_value(m), n = group_size(op->group);
  int whole = whole_value(m), coordinate[MAX_MESH];
  int *ranks = alloc((size_t)n * sizeof *ranks);
  struct spread s = {.size = alloc((size_t)n * sizeof *s.size), .rows = 1, .inner = 1};
  struct shape here = local_shape(whole, rank);
  int place = dimension_place(whole, m->dim);
  for (int at = 0; at < here.ndim; at++) {
    if (at < place) s.rows *= here.size[dimension_at(whole, at)];
    if (at > place) s.inner *= here.size[dimension_at(whole, at)];
  }
  group_members(op->group, rank, ranks);
  for (int r = 0; r < n; r++) {
    const struct value *v = &graph->value[part];
    coordinate_of(ranks[r], coordinate);
    s.size[r] = local_part(&graph->mesh, v->shape, v->layout, coordinate).shape.size[m->dim];
    s.all += s.size[r];
  }
  return s;
}

/* "wq + 8192" */
static const char *moved_on(const char *name, int64_t n)
{
  return n ? text("%s + %" PRId64, name, n) : name;
}

/* All ranks' parts of the member, for a scatter with zeros after them. Only the last parts may
   be smaller. */
static void put_parts(struct buffer *b, const struct op *op, int k, int rank)
{
  int value = whole_value(bucket_member(op, k));
  int n = group_size(op->group);
  int64_t begin = 0, chunk = bucket_chunk(op, op->nbody), place = bucket_chunk(op, k);
  int64_t room = bucket_chunk(op, k + 1) - place;
  struct spread s = spread_of(op, k, rank);
  for (int r = 0, next; r < n; r = next) {
    for (next = r + 1; next < n && s.size[next] == s.size[r];) next++;
    int64_t run = s.size[r] * s.inner, filled = s.rows * run;
    struct segment p = {.type = graph->value[value].type, .parts = next - r, .rows = s.rows};
    p.place = r * chunk + place;
    p.run = run;
    p.of = text("%" PRId64, s.all * s.inner);
    if (filled) p.at = moved_on(c_name(value), begin * s.inner);
    if (filled) put_segment(b, &p);
    begin += s.size[r] * (next - r);
    if (gathers_shards(op->kind)) continue;
    p = (struct segment){.at = "NULL", .type = p.type, .parts = next - r, .rows = 1, .of = "0"};
    p.place = r * chunk + place + filled;
    p.run = room - filled;
    put_segment(b, &p);
  }
}

/* ----------------------------------------------------------------------------------------- text */

const char *own_chunk_text(const struct op *op)
{
  const struct group *g = &graph->group[op->group];
  int64_t each = bucket_chunk(op, op->nbody);
  struct buffer b = {0};
  for (int i = g->n; i-- > 0;) {
    int size = graph->mesh.size[g->dim[i]];
    if (size == 1) continue;
    const char *rest = b.length ? copy_text(b.text) : "";
    b = (struct buffer){0};
    put(&b, " + %" PRId64 "L * rank->coordinate[%d]%s", each, g->dim[i], rest);
    each *= size;
  }
  return text("%s%s", c_name(op->buffer), b.length ? b.text : "");
}

static char *table_text(const struct op *op, int rank, bool in)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  if (!moves_shards(op->kind)) {
    /* For a reduction to the whole value: one member after the other. */
    int64_t place = 0;
    for (int k = 0, n; k < op->nbody; k += n) {
      struct segment p, next;
      n = find_run(op, k, rank, in, &p);
      for (int more; k + n < op->nbody; n += more) {
        more = find_run(op, k + n, rank, in, &next);
        if (!add_segment_row(&p, &next)) break;
      }
      p.place = place;
      place += p.run * p.rows;
      if (p.at) put_segment(&b, &p);
    }
    return b.text;
  }
  for (int k = 0; k < op->nbody; k++)
    if (gathers_shards(op->kind) == in) {
      /* The member's part that is this rank's own. */
      int value = sharded_value(bucket_member(op, k));
      struct segment p = {
          .at = c_name(value), .type = graph->value[value].type, .parts = 1, .rows = 1};
      p.place = bucket_chunk(op, k);
      p.run = elements_of_rank(value, rank);
      p.of = text("%" PRId64, p.run);
      if (p.at) put_segment(&b, &p);
    } else
      put_parts(&b, op, k, rank);
  return b.text;
}

static int count_segment_rows(const char *table)
{
  int n = 0;
  for (; (table = strchr(table, '\n')); table++) n++;
  return n;
}

static char *table_lines(const char *table)
{
  const char *head =
      "// value, bytes of an element, place in a chunk; parts, rows, elements of a row, row stride";
  return text("    const struct segment segment[] = {\n        %s%s\n    };\n", head, table);
}

/* "pack_segments(gradients, [bytes] 4, [chunk] 0, 3, segment);" */
static char *copying(const struct op *op, const char *table, bool in)
{
  int64_t chunk = has_chunks(op) ? bucket_chunk(op, op->nbody) : 0;
  const char *on =
      scheduled(op)->has_chained && !in ? text("_on(%s, ", stream_name(op->group)) : "(";
  /* MPI leaves an in-place scatter's result at the start of the buffer, NCCL in the rank's chunk.
   */
  bool own = gathers_shards(op->kind) ? in : scatters_sum(op->kind) && !in && !*library()->in_place;
  return text("%s_segments%s%s, /* bytes */ %" PRId64 ", /* chunk */ %" PRId64 ", %d, segment);",
              in ? "pack" : "unpack", on, own ? own_chunk_text(op) : c_name(op->buffer),
              type_bytes(graph->value[op->buffer].type), chunk, count_segment_rows(table));
}

static char *copies(const struct op *op, int rank, bool in)
{
  const char *table = table_text(op, rank, in);
  return *table ? text("{\n%s    %s\n  }", table_lines(table), copying(op, table, in)) : "";
}

char *copies_in_text(const struct op *op, int rank)
{
  char *copy = is_copied_in(op) ? copies(op, rank, true) : "";
  return *copy ? text("%s\n  ", copy) : "";
}

char *copies_out_text(const struct op *op, int rank)
{
  char *copy = is_copied_out(op) ? copies(op, rank, false) : "";
  return *copy ? text("\n  %s", copy) : "";
}

/* Indents each line by two more. */
static char *further_in(const char *lines)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (const char *c = lines; *c; c++) put(&b, "%.1s%s", c, *c == '\n' ? "  " : "");
  return b.text;
}

static const char *segments_moved(const struct op *op, int rank)
{
  return table_text(op, rank, scatters_sum(op->kind));
}

int count_segments(const struct op *op, int rank)
{
  return count_segment_rows(segments_moved(op, rank));
}

char *with_segments(const struct op *op, int rank, const char *call)
{
  return text("{\n%s    %s\n  }", table_lines(segments_moved(op, rank)), further_in(call));
}

char *with_copies(const struct op *op, int rank, const char *call, bool out)
{
  const char *in_table = is_copied_in(op) ? table_text(op, rank, true) : "";
  const char *out_table = out && is_copied_out(op) ? table_text(op, rank, false) : "";
  if (*in_table && !strcmp(in_table, out_table))
    return text("{\n%s    %s\n    %s\n    %s\n  }", table_lines(in_table),
                copying(op, in_table, true), further_in(call), copying(op, in_table, false));
  return text("%s%s%s", copies_in_text(op, rank), call, out ? copies_out_text(op, rank) : "");
}
