/* rows_text.c: rows by expert in plan.txt: how many a rank has in balance, has room for, and would
   have if all places named its experts; and the bytes of what takes most. */
#include "report/report.h"

struct rows_of_count {
  int counts;     /* the value that counts them */
  int widest;     /* of the values that stand by them on a rank with some experts */
  int64_t slots;  /* what an exchange has for slots, in rows; 0: none */
  int64_t ranks;  /* among how many */
  int64_t tokens; /* rows of a rank's own tokens */
};

struct rows_of_counts {
  int n, room;
  struct rows_of_count *at;
};

static int64_t width_of(int value)
{
  struct shape here = local_shape(value, 0);
  return here.size[here.ndim - 1] * type_bytes(graph->value[value].type);
}

/* The entry of the count of this value. */
static struct rows_of_count *entry(struct rows_of_counts *all, int value)
{
  for (int i = 0; i < all->n; i++)
    if (all->at[i].counts == graph->value[value].counts) return &all->at[i];
  GROW(all->at, all->n, all->room);
  all->at[all->n] = (struct rows_of_count){.counts = graph->value[value].counts, .widest = value};
  return &all->at[all->n++];
}

static void add_rows_of(void *to, int id, int times)
{
  const struct op *op = &graph->op[id];
  (void)times;
  for (int k = 0; k < op->nout; k++) {
    int value = op->out + k;
    if (graph->value[value].counts == NONE || !is_cut(value, 0) || !graph->value[value].stored)
      continue;
    struct rows_of_count *of = entry(to, value);
    if (width_of(value) > width_of(of->widest)) of->widest = value;
    if (op->kind != OP_exchange_rows || op->dim_to != 0 || !target->streams) continue;
    of->ranks = group_size(op->group);
    of->slots = rows_of_slot(op->in[0], (int)of->ranks);
    of->tokens = room_for_rows(op->in[0], 0);
  }
}

static void put_line(struct buffer *b, const char *what, double balance, int64_t room,
                     int64_t worst)
{
  put(b, "  %-44s %18s %18s %18s\n", what, grouped((int64_t)balance), grouped(room),
      grouped(worst));
}

static void put_rows_of(struct buffer *b, const struct rows_of_count *of)
{
  struct shape part = shape_of_part(of->widest, 0);
  int64_t room = room_for_rows(of->widest, 0), worst = places_of_part(part);
  int64_t row = width_of(of->widest);
  double last = (double)part.size[part.ndim - 1];
  double balance = elements_in_balance(of->widest, 0) / (last > 0 ? last : 1);
  double bound = bound_of_count(of->counts);
  put_line(b, text("%s%s", shown_name(of->counts), bound > 0 ? text(", bound = %g", bound) : ""),
           balance, room, worst);
  put_line(b, text("  bytes of %s", shown_name(of->widest)), balance * (double)row, room * row,
           worst * row);
  if (of->slots)
    put_line(b, text("  bytes of slots for %lld ranks, both ways", (long long)of->ranks),
             2 * (double)of->tokens * (double)row, 2 * of->ranks * of->slots * row,
             2 * of->ranks * of->tokens * row);
}

void put_rows_by_expert(struct buffer *b)
{
  struct rows_of_counts all = {0};
  each_op(add_rows_of, &all);
  if (!all.n) return;
  put(b, "\n%-46s %18s %18s %18s\n", "rows by expert of a rank", "in balance", "room", "at worst");
  for (int i = 0; i < all.n; i++) put_rows_of(b, &all.at[i]);
}
