/* move_query.c: tpgen --move: what it takes to move a tensor, without a plan.

   Takes   options.move, such as 'f32[16384,8192] on a=2,b=4: S(0) S(0) -> S(1) S(1)': a type and a
           shape, a mesh, and two layouts with a placement for each dimension of the mesh. The types
           are f32 bf16 i32 i64 bool. The placements are R, S(dim), P or P(sum), P(max), P(min);
           S(dim)[order] where several mesh dimensions cut the same one, but not in the mesh's
   order; S(dim/outer) for a strided shard. A negative dim counts from the end. Commas between
           sizes, and space, may be left out or added where the meaning stays clear.
   Leaves  nothing: prints the steps, what each rank sends and receives, and the lower bound; ends
           tpgen. With options.json it prints one object:
             {"steps": [{"kind", "over", "shape", "from", "to", "bytes", "sent", "received"}, ...],
              "sent": [bytes of rank 0, ...], "received": [...], "bound": bytes}
           A step's "bytes" are those of the rank that receives most. Its "shape" is the tensor's;
           for a strided shard, with its dimension split into factors. */
#include "driver/driver.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 1024 };
static const int64_t MOST_OUTER = (int64_t)1 << 42; /* struct placement has no more room */
/* Bytes of the tensor times ranks: so no sum of bytes sent can overflow. */
static const int64_t MOST_BYTES = (int64_t)1 << 58;

/* The query. */
static struct shape whole;
static enum type type;
static struct layout from, to;

/* ----------------------------------------------------------------------------- reading the text */

static const char *at; /* the place in options.move */

_Noreturn static void misread(const char *place, const char *what)
{
  enum { SHOWN = 16 };
  size_t left = strlen(place);
  const char *rest = left ? text("'%.*s'%s", SHOWN, place, left > SHOWN ? "..." : "") : "the end";
  usage_error(2, "--move: character %td, at %s: %s", place - options.move + 1, printable(rest),
              what);
}

/* "1 dimension", "2 dimensions" */
static const char *count_text(int n, const char *thing)
{
  return text("%d %s%s", n, thing, n == 1 ? "" : "s");
}

static void skip_space(void)
{
  while (isspace((unsigned char)*at)) at++;
}

/* Skips the word, if it comes here. */
static bool comes(const char *word)
{
  skip_space();
  size_t n = strlen(word);
  if (strncmp(at, word, n) != 0) return false;
  at += n;
  return true;
}

static void must_come(const char *word, const char *what)
{
  if (!comes(word)) misread(at, what);
}

static int64_t move_query_read_number(int64_t least, int64_t most, const char *what)
{
  skip_space();
  const char *place = at;
  bool minus = *at == '-';
  int64_t n = 0;
  at += minus;
  if (!isdigit((unsigned char)*at)) misread(place, what);
  for (; isdigit((unsigned char)*at); at++)
    if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *at - '0', &n))
      misread(place, what);
  if (minus) n = -n;
  if (n < least || n > most) misread(place, what);
  return n;
}

static void read_type(void)
{
  skip_space();
  for (enum type t = F32; t <= BOOL; t++) {
    size_t n = strlen(type_name(t));
    if (strncmp(at, type_name(t), n) != 0 || isalnum((unsigned char)at[n])) continue;
    at += n;
    type = t;
    return;
  }
  misread(at, "a type is one of f32 bf16 i32 i64 bool");
}

static bool starts_name(char c)
{
  return isalpha((unsigned char)c) || c == '_';
}

static void read_mesh_dim(void)
{
  struct mesh *mesh = &graph->mesh;
  skip_space();
  const char *name = at;
  if (!starts_name(*at)) misread(at, "a dimension of the mesh is as in a=2");
  if (mesh->ndim == MAX_MESH) misread(at, text("a mesh has at most %d dimensions", MAX_MESH));
  while (starts_name(*at) || isdigit((unsigned char)*at)) at++;
  mesh->name[mesh->ndim] = text("%.*s", (int)(at - name), name);
  for (int i = 0; i < mesh->ndim; i++)
    if (!strcmp(mesh->name[i], mesh->name[mesh->ndim]))
      misread(name, "the mesh has two dimensions of this name");
  must_come("=", "a dimension of the mesh is as in a=2");
  const char *size = at;
  mesh->size[mesh->ndim++] = (int)move_query_read_number(
      1, MOST_RANKS, text("a mesh has at most %d ranks, at least 1", MOST_RANKS));
  if (world_size() > MOST_RANKS)
    misread(size,
            text("this makes %d ranks; --move looks at no more than %d", world_size(), MOST_RANKS));
}

/* ------------------------------------------------------------------------------- the placements */

static enum reduction read_reduction(void)
{
  static const char *const names[] = {[SUM] = "sum", [MAX] = "max", [MIN] = "min"};
  if (!comes("(")) return SUM;
  for (enum reduction r = SUM; r <= MIN; r++)
    if (comes(names[r])) {
      must_come(")", "the reduction's ) is missing");
      return r;
    }
  misread(at, "a reduction is one of sum, max, min");
}

/* After the S: "(0)", "(-1)[1]", "(0/4)". has_order: whether a cut order is given. */
static struct placement read_shard(bool *has_order)
{
  struct placement p = {.kind = SHARD};
  must_come("(", "a shard is as in S(0)");
  int n = whole.ndim;
  const char *dims =
      n ? text("a tensor of %s has those from %d to %d", count_text(n, "dimension"), -n, n - 1)
        : "a tensor without dimensions cannot be cut";
  p.dim = (int)move_query_read_number(-n, n - 1, dims);
  if (p.dim < 0) p.dim += n;
  if (comes("/")) {
    const char *place = at;
    int64_t size = whole.size[p.dim];
    int64_t outer = move_query_read_number(1, INT64_MAX,
                                           "what is outside a strided shard is a number of parts");
    if (size % outer || (outer > 1 && size <= outer))
      misread(place, text("the size %" PRId64 " is not so many equal parts of several", size));
    if (outer > MOST_OUTER) misread(place, "a strided shard cuts at most 2^42 parts");
    p.outer = outer;
  }
  must_come(")", "the shard's ) is missing");
  *has_order = comes("[");
  if (!*has_order) return p;
  p.cut_order = (int)move_query_read_number(0, graph->mesh.ndim - 1,
                                            text("the mesh has %s: orders count from 0 to %d",
                                                 count_text(graph->mesh.ndim, "dimension"),
                                                 graph->mesh.ndim - 1));
  must_come("]", "the order's ] is missing");
  return p;
}

static struct placement read_placement(bool *has_order)
{
  *has_order = false;
  if (comes("R")) return (struct placement){0};
  if (comes("S")) return read_shard(has_order);
  if (!comes("P")) misread(at, "a placement is R, S(dim) or P, one for each dimension of the mesh");
  if (type == BOOL) misread(at - 1, "a value of type bool is never pending");
  return (struct placement){.kind = PARTIAL, .reduction = read_reduction()};
}

/* The error of the i-th placement after those before it. NULL: none. */
static const char *misfit(const struct layout *l, unsigned ordered, int i)
{
  struct placement p = l->on[i];
  for (int k = 0; k < i; k++) {
    struct placement q = l->on[k];
    if (p.kind == PARTIAL && q.kind == PARTIAL && p.reduction != q.reduction)
      return "what is pending in a tensor is of one reduction";
    if (p.kind != SHARD || q.kind != SHARD || p.dim != q.dim) continue;
    if (ordered >> i & ordered >> k & 1 && p.cut_order == q.cut_order)
      return "two dimensions of the mesh cut it in the same order";
    int64_t a = shard_stride(p), b = shard_stride(q);
    if (a % b && b % a) return "the strides of one dimension must divide each other";
  }
  return NULL;
}

/* A cut order is one of those of the dimension's cuts. */
static const char *order_misfit(const struct layout *l)
{
  for (int i = 0; i < graph->mesh.ndim; i++) {
    int cut[MAX_MESH];
    if (l->on[i].kind == SHARD &&
        l->on[i].cut_order >= cuts_of(&graph->mesh, *l, l->on[i].dim, cut))
      return text("%s cuts dimension %d in order %d, but fewer dimensions of the mesh cut it",
                  graph->mesh.name[i], l->on[i].dim, l->on[i].cut_order);
  }
  return NULL;
}

/* Along a mesh dimension of size 1 everything is whole. */
static struct layout read_layout(const char *which)
{
  struct layout l = {0};
  unsigned ordered = 0;
  skip_space();
  const char *start = at;
  for (int i = 0; i < graph->mesh.ndim; i++) {
    bool has_order;
    comes(",");
    skip_space();
    const char *place = at;
    if (!*at || !strncmp(at, "->", 2))
      misread(at, text("%s has %s, and the mesh %s", which, count_text(i, "placement"),
                       count_text(graph->mesh.ndim, "dimension")));
    l.on[i] = read_placement(&has_order);
    ordered |= (unsigned)has_order << i;
    const char *wrong = misfit(&l, ordered, i);
    if (wrong) misread(place, wrong);
  }
  const char *wrong = order_misfit(&l);
  if (wrong) misread(start, wrong);
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (graph->mesh.size[i] == 1) l.on[i] = (struct placement){0};
  return usual_cut_order(l);
}

/* NAME=BANDWIDTH,LATENCY */
static void read_link(const char *link)
{
  struct mesh *mesh = &graph->mesh;
  const char *equals = strchr(link, '=');
  char *end = NULL;
  int i = 0;
  if (!equals) usage_error(2, "--link %s: write --link a=25e9,10e-6", printable(link));
  size_t n = (size_t)(equals - link);
  while (i < mesh->ndim && (strlen(mesh->name[i]) != n || strncmp(mesh->name[i], link, n) != 0))
    i++;
  if (i == mesh->ndim)
    usage_error(2, "--link %s: the mesh of --move has no such dimension", printable(link));
  double bandwidth = strtod(equals + 1, &end), latency = 0;
  bool given = *end == ',';
  if (given) latency = strtod(end + 1, &end);
  if (*end || end == equals + 1)
    usage_error(2, "--link %s: write --link a=25e9,10e-6", printable(link));
  if (!(bandwidth >= 1e6 && bandwidth < 1e18))
    usage_error(2, "--link %s: the bandwidth must be at least 1e6 and below 1e18 bytes a second",
                printable(link));
  if (given && !(latency >= 1e-12 && latency < 1000))
    usage_error(2, "--link %s: the latency must be at least 1e-12 and below 1000 seconds",
                printable(link));
  mesh->bandwidth[i] = bandwidth;
  mesh->latency[i] = latency;
}

static void read_question(void)
{
  at = options.move;
  read_type();
  must_come("[", "a shape is as in f32[16384,8192]");
  while (!comes("]")) {
    if (whole.ndim == MAX_DIMS) misread(at, text("a tensor has at most %d dimensions", MAX_DIMS));
    whole.size[whole.ndim++] =
        move_query_read_number(0, (int64_t)1 << 62, "a size is a whole number from 0 to 2^62");
    if (!comes(",") && *at != ']') misread(at, "after a size comes a comma or ]");
  }
  must_come("on", "after the shape comes the mesh, as in: on a=2,b=4");
  do read_mesh_dim();
  while (comes(","));
  must_come(":", "after the mesh comes a colon");
  int64_t n = type_bytes(type) * world_size();
  for (int d = 0; d < whole.ndim; d++)
    if (__builtin_mul_overflow(n, whole.size[d] ? whole.size[d] : 1, &n) || n > MOST_BYTES)
      usage_error(2, "--move: %s%s on %d ranks: no more than 2^58 bytes, times ranks, are counted",
                  type_name(type), shape_text(whole), world_size());
  from = read_layout("the mesh of the tensor");
  must_come("->", text("after %s comes ->, and the layout to move to",
                       count_text(graph->mesh.ndim, "placement")));
  to = read_layout("the layout after ->");
  skip_space();
  if (*at)
    misread(at, text("there is more than two layouts of %s",
                     count_text(graph->mesh.ndim, "placement")));
  plan_options->greedy = options.planner && !strcmp(options.planner, "greedy");
  for (int i = 0; i < options.nlink; i++) read_link(options.link[i]);
}

/* ----------------------------------------------------------------------------------- the answer */

/* A step, of the tensor viewed in this shape, and the bytes that each rank sends and receives in
   it. */
struct step {
  const char *kind;
  struct shape whole;
  struct move move;
  int64_t *sent, *received;
};
struct answer {
  int n;
  struct step *step;
  int64_t *sent, *received; /* in all */
  double time;
  int64_t bound;
};

static int64_t *bytes_by_rank(void)
{
  return alloc((size_t)world_size() * sizeof(int64_t));
}

static int64_t most(const int64_t *bytes)
{
  int64_t n = 0;
  for (int r = 0; r < world_size(); r++) n = bytes[r] > n ? bytes[r] : n;
  return n;
}

/* Placements of all mesh dimensions, including those of size 1. */
static const char *placements_text(struct layout layout)
{
  struct buffer b = {0};
  for (int i = 0; i < graph->mesh.ndim; i++) {
    struct placement p = layout.on[i];
    put(&b, "%s%s", i ? " " : "", placement_text(p));
    if (p.kind == SHARD && is_reordered(&graph->mesh, layout, p.dim))
      put(&b, "[%d]", usual_cut_order(layout).on[i].cut_order);
  }
  return b.text;
}

static struct step move_query_step_of(const struct move *m, struct shape seen)
{
  struct step s = {.kind = op_row[m->kind].name,
                   .whole = seen,
                   .move = *m,
                   .sent = bytes_by_rank(),
                   .received = bytes_by_rank()};
  if (m->kind == OP_exchange && find_traits(m, seen).permutes) s.kind = "permute";
  add_traffic(m, seen, type, s.sent, s.received);
  return s;
}

/* Between strided shards with different outer factors: at least the bytes that a rank holds more
   than before. It may make its part of a pending sum itself. */
static int64_t bytes_gained(void)
{
  int64_t most_gained = 0;
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (to.on[i].kind == PARTIAL) return 0;
  for (int r = 0; r < world_size(); r++) {
    int at_mesh[MAX_MESH];
    coordinate_of(r, at_mesh);
    int64_t gained = elements(local_part(&graph->mesh, whole, to, at_mesh).shape) -
                     elements(local_part(&graph->mesh, whole, from, at_mesh).shape);
    if (gained > most_gained) most_gained = gained;
  }
  return most_gained * type_bytes(type);
}

static int64_t least_over(const struct move_segment *segment, int n)
{
  if (n > 1) return bytes_gained();
  const struct moves *m = n ? segment->moves : NULL;
  if (!m || !m->n) return 0;
  return least_bytes(cost_model_of_graph(), segment->whole, type, m->move[0].from,
                     m->move[m->n - 1].to);
}

static struct answer move_query_answer(void)
{
  struct move_segment segment[MAX_SEGMENTS];
  int nsegment = segments_of(whole, type, from, to, segment);
  if (nsegment == NONE)
    usage_error(2, "--move: %s taken apart at its strides has more than %d dimensions",
                shape_text(whole), MAX_DIMS);
  struct answer a = {.step = alloc(MAX_SEGMENTS * MAX_MOVES * sizeof *a.step),
                     .sent = bytes_by_rank(),
                     .received = bytes_by_rank(),
                     .bound = least_over(segment, nsegment)};
  for (int i = 0; i < nsegment; i++) {
    for (int k = 0; k < segment[i].moves->n; k++) {
      struct step s = move_query_step_of(&segment[i].moves->move[k], segment[i].whole);
      a.step[a.n++] = s;
      for (int r = 0; r < world_size(); r++) {
        a.sent[r] += s.sent[r];
        a.received[r] += s.received[r];
      }
    }
    a.time += segment[i].moves->time;
  }
  return a;
}

/* --------------------------------------------------------------------------------- for programs */

static json_t *bytes_json(const int64_t *bytes)
{
  json_t *list = json_array();
  for (int r = 0; r < world_size(); r++) json_append(list, json_integer(bytes[r]));
  return list;
}

static json_t *step_json(const struct step *s)
{
  json_t *over = json_array();
  for (int i = 0; i < s->move.n; i++)
    json_append(over, json_string(graph->mesh.name[s->move.dim[i]]));
  return json_pack("{s:s, s:o, s:o, s:s, s:s, s:I, s:o, s:o}", "kind", s->kind, "over", over,
                   "shape", json_shape(s->whole), "from", placements_text(s->move.from), "to",
                   placements_text(s->move.to), "bytes", (json_int_t)most(s->received), "sent",
                   bytes_json(s->sent), "received", bytes_json(s->received));
}

static void print_json(const struct answer *a)
{
  json_t *steps = json_array();
  for (int k = 0; k < a->n; k++) json_append(steps, step_json(&a->step[k]));
  json_t *all = json_pack("{s:o, s:o, s:o, s:I}", "steps", steps, "sent", bytes_json(a->sent),
                          "received", bytes_json(a->received), "bound", (json_int_t)a->bound);
  puts(json_text(all, JSON_COMPACT));
}

/* ----------------------------------------------------------------------------------- for people */

/* "688 us" */
static const char *shown_seconds(double s)
{
  if (s >= 1) return text("%.3g s", s);
  if (s > 0 && s < 1e-6) return text("%.3g ns", s * 1e9);
  return s >= 1e-3 ? text("%.3g ms", s * 1e3) : text("%.3g us", s * 1e6);
}

/* "all_gather over a, b", "all_gather over a of [4, 6, 5]" */
static const char *what_text(const struct step *s)
{
  struct buffer b = {0};
  put(&b, "%s over", s->kind);
  for (int i = 0; i < s->move.n; i++)
    put(&b, "%s %s", i ? "," : "", graph->mesh.name[s->move.dim[i]]);
  if (!same_shape(s->whole, whole)) put(&b, " of %s", shape_text(s->whole));
  return b.text;
}

static int move_query_wider(int width, const char *shown)
{
  int n = (int)strlen(shown);
  return n > width ? n : width;
}

/* The steps in columns: kind, the layouts before and after, and the bytes of the ranks that send
   and receive most. */
static void print_steps(const struct answer *a)
{
  int what = 0, before = 0, after = 0;
  for (int k = 0; k < a->n; k++) {
    what = move_query_wider(what, what_text(&a->step[k]));
    before = move_query_wider(before, placements_text(a->step[k].move.from));
    after = move_query_wider(after, placements_text(a->step[k].move.to));
  }
  if (a->n)
    printf("  %-*s%20s%20s\n", what + before + after + 9, "step", "most bytes sent", "received");
  for (int k = 0; k < a->n; k++) {
    const struct step *s = &a->step[k];
    printf("  %d  %-*s  %-*s -> %-*s%20s%20s\n", k + 1, what, what_text(s), before,
           placements_text(s->move.from), after, placements_text(s->move.to),
           grouped(most(s->sent)), grouped(most(s->received)));
  }
  if (!a->n) puts("  nothing has to be done");
}

/* "0-3, 6": the ranks from `first` on that send and receive as many bytes as it does. */
static const char *ranks_like(const struct answer *a, int first)
{
  enum { RANGES = 4 };
  struct buffer b = {0};
  int ranges = 0, left = 0;
  for (int r = first; r < world_size(); r++) {
    if (a->sent[r] != a->sent[first] || a->received[r] != a->received[first]) continue;
    int last = r;
    while (last + 1 < world_size() && a->sent[last + 1] == a->sent[first] &&
           a->received[last + 1] == a->received[first])
      last++;
    if (ranges++ < RANGES)
      put(&b, last > r ? "%s%d-%d" : "%s%d", b.length ? ", " : "", r, last);
    else
      left += last - r + 1;
    r = last;
  }
  if (left) put(&b, " and %d more", left);
  return b.text;
}

static bool is_first_of_its_kind(const struct answer *a, int rank)
{
  for (int r = 0; r < rank; r++)
    if (a->sent[r] == a->sent[rank] && a->received[r] == a->received[rank]) return false;
  return true;
}

static void print_answer(const struct answer *a)
{
  int64_t received = most(a->received);
  printf("%s%s, %s bytes, on", type_name(type), shape_text(whole),
         grouped(elements(whole) * type_bytes(type)));
  for (int i = 0; i < graph->mesh.ndim; i++)
    printf(" %s=%d", graph->mesh.name[i], graph->mesh.size[i]);
  printf(": %s -> %s, by the %s planner\n\n", placements_text(from), placements_text(to),
         plan_options->greedy ? "greedy" : "fastest");
  print_steps(a);
  int width = 0;
  for (int r = 0; r < world_size(); r++)
    if (is_first_of_its_kind(a, r)) width = move_query_wider(width, ranks_like(a, r));
  printf("\n  %-*s%20s%20s\n", width, "rank", "bytes sent", "bytes received");
  for (int r = 0; r < world_size(); r++)
    if (is_first_of_its_kind(a, r))
      printf("  %-*s%20s%20s\n", width, ranks_like(a, r), grouped(a->sent[r]),
             grouped(a->received[r]));
  printf("\n  time by the model of the links: %s\n", shown_seconds(a->time));
  struct buffer b = {0};
  put(&b, "  links:");
  for (int i = 0; i < graph->mesh.ndim; i++)
    put(&b, "%s %s %.4g GB/s and %s", i ? "," : "", graph->mesh.name[i],
        link_of_dimension(i).bandwidth / 1e9, shown_seconds(link_of_dimension(i).latency));
  puts(wrapped(b.text, ", ", "         "));
  printf("  lower bound, bytes received: %s; the rank that receives most receives %s\n",
         grouped(a->bound), grouped(received));
}

void run_move_query(void)
{
  if (!options.move) return;
  read_question();
  struct answer a = move_query_answer();
  if (options.json)
    print_json(&a);
  else
    print_answer(&a);
  end_printing();
}
