/* check_order.c: a part of check.c: operations of two streams touch the same bytes in one order on
   every device.

   Takes   the program with storage for every value.
   Holds   if two operations touch the same byte and one of them writes it, the one that is issued
           later waits for the other: both run on one stream, or events and waits lead from the one
           to the other.

   The check issues the step as a rank does, with check_places.c's iterations of each loop, without
   the arithmetic. It numbers the operations issued to each stream (`stream`, and those of groups).
   A stream's clock holds, for each stream, the number up to which all is done before its next
   operation. An overlapped collective joins the clock of `stream` to its group's, as begin_on does,
   or the clock of the event that begin_behind waits for. An await joins its event's clock to that
   of `stream`. Each byte keeps its last writer, and its last reader since then on each stream.
   These must be done by the clock of the next operation that touches the byte. So the check uses
   neither live ranges nor the reasons for a wait: it does not rely on the passes schedule and
   memory.

   A group's communicator counts as a byte that all of its collectives write: they have one order on
   the device, as ranks call them in one order.

   Each overlapped collective is awaited exactly once: later in its function, or, if it is pending
   between the iterations of a loop, in another iteration or after the loop. Its event belongs to no
   other pending collective. So at the end of a phase `stream` has waited for all other streams, and
   each phase can be checked by itself.

   All this is checked on the graph, as if each rank had a part of every value. A rank without a
   part issues less, and loses the order that such an operation gives others. So for each class of
   ranks that has a program for CUDA the check runs again on the text of its statements: the streams
   they issue to, and the events they record and wait for. */
#include "check/check.h"

#include <stdlib.h>
#include <string.h>

enum { MAIN };                  /* the first stream: `stream`; then those of groups */
static int nstream, *stream_of; /* by group: MAIN if all of its collectives run on `stream` */
static int *clock_of;           /* by stream, of each stream: rows of nstream numbers */
static int *event_clock;        /* by event, likewise */
static int *call;               /* by group: the stream and the number of its last collective */

/* An interval's row: the stream that wrote it last (0: none) and the number of that operation; then
   for each stream the number of its last reader since. */
enum { WRITER, WRITTEN, READ };
static struct bytes bytes;
static bool *is_made; /* by value: something has written it */

/* The statement of each operation in the program of a class of ranks, and one of these ranks. NULL:
   all operations of the graph are issued. */
static const char *const *statement;
static int rank;

/* The operation that is issued now, and its module; NONE: outside of loops. */
static struct {
  const struct op *op;
  int id, module, stream;
} now;

static int *clock_at(int stream)
{
  return clock_of + stream * nstream;
}

static void check_order_join(int *into, const int *from)
{
  for (int i = 0; i < nstream; i++)
    if (into[i] < from[i]) into[i] = from[i];
}

static void issue_to(int stream)
{
  now.stream = stream;
  clock_at(stream)[stream]++;
}

/* ------------------------------------------------------------------------------------- touching */

static bool is_over(int stream, int number)
{
  return clock_at(now.stream)[stream] >= number;
}

/* The texts `touches` and `touched` name the operation issued now, and the earlier one. */
static void check_order_wait_for(int stream, int number, const char *touches, const char *touched)
{
  if (is_over(stream, number)) return;
  require(false, now.id,
          text("it %s what %s %s%s%s", touches,
               stream == MAIN ? "the stream" : "a pending collective",
               stream == MAIN ? "may still " : "", touched,
               statement ? text(", on rank %d", rank) : ""));
}

static void read_bytes(struct place p)
{
  struct intervals s = intervals_of(&bytes, p, true);
  for (int k = 0; k < s.n; k++) {
    int *row = row_of(s, k);
    check_order_wait_for(row[WRITER], row[WRITTEN], "reads",
                         row[WRITER] == MAIN ? "write" : "writes");
    row[READ + now.stream] = clock_at(now.stream)[now.stream];
  }
}

static void write_bytes(struct place p)
{
  struct intervals s = intervals_of(&bytes, p, true);
  for (int k = 0; k < s.n; k++) {
    const int *row = row_of(s, k);
    check_order_wait_for(row[WRITER], row[WRITTEN], "writes",
                         row[WRITER] == MAIN ? "write" : "writes");
    for (int i = 0; i < nstream; i++)
      check_order_wait_for(i, row[READ + i], "writes", i == MAIN ? "read" : "reads");
  }
  if (!s.n) return;
  make_one(s);
  int *row = row_of(s, 0);
  memset(row, 0, (size_t)bytes.arena.width * sizeof *row);
  row[WRITER] = now.stream;
  row[WRITTEN] = clock_at(now.stream)[now.stream];
}

/* Whether it has no bytes to check: it has no storage, its module is not run, or it is a
   literal. */
static bool is_passed_over(int value)
{
  const struct value *v = &graph->value[value];
  bool full = v->op != NONE && graph->op[v->op].kind == OP_full && elements(v->shape) == 1;
  return !v->stored || one_of(value, now.module).index == NONE || (full && !is_made[value]);
}

static int64_t elements_here(int value)
{
  return elements(local_shape(value, rank));
}

static void check_order_touch(int value, bool writes)
{
  if (writes) is_made[value] = true;
  if (is_passed_over(value) || (statement && !elements_here(value))) return;
  struct place p = place_of(value, now.module);
  struct pieces pieces = pieces_of(now.op, value, one_of(value, now.module));
  if (writes) {
    /* Whether the statement for a product's piece also zeroes other pieces. */
    const char *zeros = statement ? strstr(statement[now.id], "cudaMemsetAsync(") : NULL;
    bool zeroes_others = false;
    if (now.op->kind == OP_matmul && now.op->pieces && zeros) {
      const char *loop = strstr(statement[now.id], "; i < ");
      int64_t times = loop ? strtoll(loop + strlen("; i < "), NULL, 10) : 1;
      int64_t bytes = strtoll(strstr(zeros, ", 0, ") + strlen(", 0, "), NULL, 10);
      zeroes_others = times * bytes * now.op->pieces >
                      elements_here(now.op->out) * type_bytes(graph->value[now.op->out].type);
    }
    if (zeroes_others) pieces = pieces_of(NULL, value, one_of(value, now.module));
  }
  for (int k = pieces.first; k < pieces.end; k++)
    (writes ? write_bytes : read_bytes)(piece_of(p, k, pieces.all));
}

static int *list, list_room; /* values of an operation */

static void read_all(int (*of)(const struct op *op, int *list), const struct op *op)
{
  for (int n = of(op, list); n--;) check_order_touch(list[n], false);
}

static void write_all(int (*of)(const struct op *op, int *list), const struct op *op)
{
  for (int n = of(op, list); n--;) check_order_touch(list[n], true);
}

/* The inputs and outputs of a bucket's members. */
static int members_in(const struct op *op, int *to)
{
  for (int k = 0; k < op->nbody; k++) to[k] = graph->op[op->body[k]].in[0];
  return op->nbody;
}

static int members_out(const struct op *op, int *to)
{
  for (int k = 0; k < op->nbody; k++) to[k] = graph->op[op->body[k]].out;
  return op->nbody;
}

/* ---------------------------------------------------------------------------------- collectives */

static void copy_in(const struct op *op)
{
  if (!needs_copy_in(op, now.module)) return;
  issue_to(MAIN);
  read_all(members_in, op);
  check_order_touch(op->buffer, true);
}

static void copy_out(const struct op *op, int stream)
{
  if (!needs_copy_out(op, now.module)) return;
  issue_to(stream);
  check_order_touch(op->buffer, false);
  write_all(members_out, op);
}

/* The call itself touches, for a bucket, its buffer, and the members that are in the buffer or are
   used in its place. */
static void call_it(const struct op *op, int stream)
{
  int *last = call + 2 * op->group;
  issue_to(stream);
  require(is_over(last[0], last[1]), now.id,
          "a collective passes one of its group that is pending");
  last[0] = stream;
  last[1] = clock_at(stream)[stream];
  if (!op->packed) {
    read_all(op_reads, op);
    write_all(op_makes, op);
    return;
  }
  if (!needs_copy_in(op, now.module)) read_all(members_in, op);
  check_order_touch(op->buffer, false);
  check_order_touch(op->buffer, true);
  if (!needs_copy_out(op, now.module)) write_all(members_out, op);
}

/* A pending collective, and its module. */
static struct {
  int n, room;
  struct begun {
    int op, module;
  } * at;
} pending;

/* The event that the module's collective records when done. */
static int event_in(const struct op *op, int module)
{
  return scheduled(op)->event + (event_slots(op) > 1 ? module % event_slots(op) : 0);
}

/* begin_on or begin_behind, the call, and end_on. */
static void check_order_begin(const struct op *op)
{
  int stream = stream_of[op->group];
  const struct op *before = predecessor_of(op);
  copy_in(op);
  check_order_join(clock_at(stream),
                   before ? event_clock + event_in(before, now.module) * nstream : clock_at(MAIN));
  call_it(op, stream);
  if (scheduled(op)->has_chained) copy_out(op, stream);
  int event = scheduled(op)->event;
  require(event >= 0 && event + event_slots(op) <= graph->schedule->nevent, now.id,
          "it has no event");
  for (int k = 0; k < pending.n; k++)
    require(event_in(op, now.module) !=
                event_in(&graph->op[pending.at[k].op], pending.at[k].module),
            now.id, "two that are pending have one event");
  GROW(pending.at, pending.n, pending.room);
  pending.at[pending.n++] = (struct begun){now.id, now.module};
  memcpy(event_clock + event_in(op, now.module) * nstream, clock_at(stream),
         (size_t)nstream * sizeof *clock_of);
}

/* Whether it was pending. */
static bool end_pending(int op)
{
  int k = 0;
  while (k < pending.n && (pending.at[k].op != op || pending.at[k].module != now.module)) k++;
  if (k == pending.n) return false;
  memmove(pending.at + k, pending.at + k + 1, (size_t)(--pending.n - k) * sizeof *pending.at);
  return true;
}

/* Awaits the collective of its own module, and its predecessor in the chain. */
static void check_order_await(int begun)
{
  const struct op *op = &graph->op[begun];
  require(end_pending(begun), now.id, "it awaits what is not pending");
  for (const struct op *o = op; (o = predecessor_of(o));) end_pending((int)(o - graph->op));
  check_order_join(clock_at(MAIN), event_clock + event_in(op, now.module) * nstream);
  now.op = op;
  if (!scheduled(op)->has_chained) copy_out(op, MAIN);
}

static bool goes_over_edge(const struct op *op)
{
  return is_transfer(op->kind) && target->edge_groups;
}

/* A transfer between stages of a pipeline begins when the stream has reached it, and runs on the
   stream of its edge. After a receive the stream waits for it. The step waits for a send when its
   update begins: until then nothing may write the value that is sent. */
static void check_order_transfer(const struct op *op)
{
  const int stream = stream_of[edge_of(op)];
  check_order_join(clock_at(stream), clock_at(MAIN));
  issue_to(stream);
  read_all(op_reads, op);
  write_all(op_makes, op);
  if (op->kind == OP_receive) check_order_join(clock_at(MAIN), clock_at(stream));
}

/* --------------------------------------------------------------------- the calls of a statement */

/* "stream", or a group's. */
static int stream_said(const char *name)
{
  size_t n = strcspn(name, ",)");
  if (n == strlen("stream") && !strncmp(name, "stream", n)) return MAIN;
  for (int i = 0; i < graph->ngroup; i++) {
    const char *of_group = stream_of[i] == MAIN ? "" : stream_name(i);
    if (strlen(of_group) == n && !strncmp(of_group, name, n)) return stream_of[i];
  }
  require(false, now.id, "its statement names no stream that there is");
  return MAIN;
}

/* "done[3]", "done[l % 2]", "done[3 + l % 2]": the row of its clock. */
static int *event_said(const char *call)
{
  const char *name = strstr(call, "done[");
  require(name != NULL, now.id, "its statement names no event");
  char *rest = (char *)name + strlen("done[");
  long event = *rest == 'l' ? 0 : strtol(rest, &rest, 10);
  if (!strncmp(rest, " + ", 3)) rest += 3;
  if (*rest == 'l') event += now.module % strtol(rest + strlen("l % "), &rest, 10);
  require(*rest == ']' && event >= 0 && event < graph->schedule->nevent, now.id,
          "its statement names no event that there is");
  return event_clock + event * nstream;
}

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

static bool is_call(const char *s, const char *name)
{
  size_t n = strlen(name);
  return !strncmp(s, name, n) && s[n] == '(';
}

static void run_statement(const struct op *op)
{
  const char *s = statement[now.id];
  require(s != NULL, now.id, "the program has no statement for it");
  if (!*s) return;
  if (goes_over_edge(op)) {
    check_order_transfer(op);
    return;
  }
  if (!is_collective(op->kind) && op->kind != OP_await) {
    issue_to(MAIN);
    read_all(op_reads, op);
    write_all(op_makes, op);
    return;
  }
  if (is_collective(op->kind)) copy_in(op);
  for (size_t word; *s; s += word ? word : 1) {
    word = strspn(s, letters);
    if (word && s[word] == '(') {
      /* The call at this place, if it concerns streams. */
      const char *given = strchr(s, '(') + 1, *rest = strchr(s, ';');
      if (is_call(s, "begin_on")) {
        check_order_join(clock_at(stream_said(given)), clock_at(MAIN));
      } else if (is_call(s, "begin_behind")) {
        check_order_join(clock_at(stream_said(given)), event_said(given));
      } else if (is_call(s, "end_on")) {
        memcpy(event_said(given), clock_at(stream_said(given)), (size_t)nstream * sizeof *clock_of);
      } else if (is_call(s, "COLLECTIVE")) {
        int stream = stream_said(strstr(given, ", ") + strlen(", "));
        call_it(op, stream);
        if (stream == MAIN || scheduled(op)->has_chained) copy_out(op, stream);
      } else if (is_call(s, "await")) {
        check_order_join(clock_at(MAIN), event_said(given));
        now.op = &graph->op[op->awaits];
        if (rest && rest[1]) copy_out(now.op, MAIN);
      }
    }
  }
}

/* ---------------------------------------------------------------------------------- the program */

/* A view is not an operation on a device. */
static bool shows_its_input(const struct op *op)
{
  if (op->kind == OP_scan_stack) return true;
  if (!shows_bytes(op) || is_passed_over(op->in[0]) || is_passed_over(op->out))
    return shows_bytes(op);
  struct place in = place_of(op->in[0], now.module), out = place_of(op->out, now.module);
  if (op->kind == OP_scan_take) return lies_within(out, in);
  return in.own == out.own && in.from == out.from && in.bytes == out.bytes;
}

static void check_order_run_op(int id, int module)
{
  const struct op *op = &graph->op[id];
  now.op = op;
  now.id = id;
  now.module = module;
  while (list_room < op_width(op)) list = grow(list, 0, &list_room, sizeof *list);
  if (statement) {
    run_statement(op);
  } else if (op->kind == OP_await) {
    check_order_await(op->awaits);
  } else if (is_collective(op->kind) && scheduled(op)->overlapped) {
    check_order_begin(op);
  } else if (is_collective(op->kind)) {
    copy_in(op);
    call_it(op, MAIN);
    copy_out(op, MAIN);
  } else if (goes_over_edge(op)) {
    check_order_transfer(op);
  } else if (!shows_its_input(op)) {
    issue_to(MAIN);
    read_all(op_reads, op);
    write_all(op_makes, op);
  }
}

static void check_order_run_function(const struct function *f, int iteration)
{
  int module = f->count > 1 ? module_of_iteration(f, iteration) : NONE;
  for (int i = 0; i < f->nop; i++) {
    const struct op *op = &graph->op[f->op[i]];
    const struct function *called = &graph->function[op->function];
    if (op->kind == OP_loop)
      for (int r = 0; r < called->count; r++) {
        check_order_run_function(called, r);
        /* A collective that is pending at the end of an iteration is loop-carried. */
        for (int k = 0; k < pending.n; k++)
          require(pending.at[k].module == NONE || is_loop_carried(&graph->op[pending.at[k].op]),
                  pending.at[k].op, "it is not awaited where its function ends");
      }
    else if (op->kind != OP_iteration)
      check_order_run_op(f->op[i], module);
    else if (iteration_called(op, iteration) != NONE)
      check_order_run_function(called, iteration_called(op, iteration));
  }
}

static void run_phases(void)
{
  begin_run();
  stream_of = alloc((size_t)(graph->ngroup + 1) * sizeof *stream_of);
  nstream = 1;
  for (int i = 0; i < graph->ngroup; i++)
    if (has_stream(i)) stream_of[i] = nstream++;
  clock_of = alloc((size_t)(nstream * nstream) * sizeof *clock_of);
  event_clock = alloc((size_t)(nstream * graph->schedule->nevent + 1) * sizeof *event_clock);
  call = alloc((size_t)(2 * graph->ngroup + 1) * sizeof *call);
  open_bytes(&bytes, READ + nstream);
  is_made = alloc((size_t)graph->nvalue + 1);
  memset(&pending, 0, sizeof pending);
  list_room = 0;
  for (int i = 0; i < graph->nfunction; i++) {
    if (!is_phase(&graph->function[i])) continue;
    if (graph->function[i].phase == UPDATE) {
      for (int g = 0; g < graph->ngroup; g++)
        if (graph->group[g].is_edge) check_order_join(clock_at(MAIN), clock_at(stream_of[g]));
    }
    check_order_run_function(&graph->function[i], 0);
    /* At the end of a phase. */
    require(!pending.n, pending.n ? pending.at[0].op : NONE,
            "it is not awaited where its function ends");
    for (int g = 0; g < graph->ngroup; g++)
      require(graph->group[g].is_edge ||
                  clock_at(MAIN)[stream_of[g]] >= clock_at(stream_of[g])[stream_of[g]],
              NONE, "a stream is not awaited where a phase ends");
  }
  end_run();
}

void check_order(void)
{
  checked_pass = pass_name[PASS_MEMORY];
  statement = NULL;
  run_phases();
}

void check_issued(int of_rank, const char *const *of_op)
{
  checked_pass = "emit";
  statement = of_op;
  rank = of_rank;
  run_phases();
}
