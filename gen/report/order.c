/* order.c: adds to plan.txt the order in which every rank issues the collectives, which the pass
   `emit` has proved: a paragraph for each phase, and separate lines for a loop's iterations. */
#include "report/report.h"

enum { LABEL = 13 }; /* columns before the collectives */

/* A line as it grows; it is broken if it becomes too long. */
struct line {
  struct buffer *to, items;
  const char *label; /* the text before its first item */
};

static void end_line(struct line *line)
{
  if (!line->items.length) return;
  char *whole = text("%-*s%s", LABEL, line->label, line->items.text);
  put(line->to, "%s\n", wrapped(whole, ", ", text("%*s", LABEL, "")));
  line->items = (struct buffer){0};
  line->label = "";
}

/* The iterations of a loop for which another one issues it. */
static char *iteration_words(const struct op *call)
{
  switch (call->iteration) {
  case NEXT_ITERATION:
    return call->ahead > 1 ? text(" %d iterations ahead", call->ahead)
                           : copy_text(" one iteration ahead");
  case PREVIOUS_ITERATION:
    return copy_text(" of the iteration before");
  case IN_LAST_ITERATION:
    return copy_text(" in the last iteration");
  default:
    return copy_text("");
  }
}

static void put_function(struct line *line, const struct function *f, const char *words)
{
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    if (op->kind == OP_iteration) {
      put_function(line, &graph->function[op->function], iteration_words(op));
    } else if (op->kind == OP_loop) {
      const struct function *body = &graph->function[op->function];
      end_line(line);
      line->label = text("%*s ", LABEL - 1, text("%d times", body->count));
      put_function(line, body, "");
      end_line(line);
      line->label = text("%*s ", LABEL - 1, "then");
    } else if (is_collective(op->kind)) {
      put(&line->items, "%s%s %s over %s%s%s", line->items.length ? ", " : "", kind_of(op),
          grouped(bytes_brought(op)), printable(graph->group[op->group].name), words,
          op->last_batch ? " in the last batch" : "");
    }
  }
}

void put_order(struct buffer *b)
{
  size_t before;
  put(b, "\norder        of the collectives on every rank, with the bytes that a rank hands to "
         "each;\n");
  put(b, "             proved free of deadlock on %d rank%s\n", world_size(),
      world_size() == 1 ? "" : "s");
  before = b->length;
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    if (!is_phase(f)) continue;
    const int runs = runs_of_phase(f->phase);
    const char *batches = runs > 1 ? text(", %d times", runs) : "";
    struct line line = {.to = b, .label = text("  %s%s ", f->name, batches)};
    put_function(&line, f, "");
    end_line(&line);
  }
  if (b->length == before) put(b, "  nothing\n");
}
