/* rows_text.c: rows by expert in plan.txt and plan.json: the numbers that a rank has in balance,
   has room for, and would have if all places named its experts; and the bytes of the value that
   takes most. */
#include "report/report.h"

/* Counts of rows, or of bytes. */
struct room_of_rows {
  int64_t balance, room, worst;
};

struct rows_of_count {
  int counts;     /* the value that counts them */
  int widest;     /* of the values that are stored by rows on a rank with some experts */
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

static struct rows_of_counts rows_text_find_rows(void)
{
  struct rows_of_counts all = {0};
  each_op(add_rows_of, &all);
  return all;
}

static struct room_of_rows rows_of(const struct rows_of_count *of)
{
  struct shape part = shape_of_part(of->widest, 0);
  double last = (double)part.size[part.ndim - 1];
  return (struct room_of_rows){
      .balance = (int64_t)(elements_in_balance(of->widest, 0) / (last > 0 ? last : 1)),
      .room = room_for_rows(of->widest, 0),
      .worst = places_here(of->widest, 0, part)};
}

static struct room_of_rows rows_text_bytes_of(const struct rows_of_count *of)
{
  struct room_of_rows rows = rows_of(of);
  int64_t row = width_of(of->widest);
  return (struct room_of_rows){rows.balance * row, rows.room * row, rows.worst * row};
}

/* The bytes of the slots, there and back. */
static struct room_of_rows slots_of(const struct rows_of_count *of)
{
  int64_t row = 2 * width_of(of->widest);
  return (struct room_of_rows){of->tokens * row, of->ranks * of->slots * row,
                               of->ranks * of->tokens * row};
}

static void put_line(struct buffer *b, const char *what, struct room_of_rows its)
{
  put(b, "  %-44s %18s %18s %18s\n", what, grouped(its.balance), grouped(its.room),
      grouped(its.worst));
}

void put_rows_by_expert(struct buffer *b)
{
  struct rows_of_counts all = rows_text_find_rows();
  if (!all.n) return;
  put(b, "\n%-46s %18s %18s %18s\n", "rows by expert of a rank", "in balance", "room", "at worst");
  for (int i = 0; i < all.n; i++) {
    const struct rows_of_count *of = &all.at[i];
    double bound = bound_of_count(of->counts);
    const char *held = bound > 0 ? text(", bound = %g", bound) : "";
    put_line(b, text("%s%s", shown_name(of->counts), held), rows_of(of));
    put_line(b, text("  bytes of %s", shown_name(of->widest)), rows_text_bytes_of(of));
    if (of->slots)
      put_line(b, text("  bytes of slots for %lld ranks, both ways", (long long)of->ranks),
               slots_of(of));
  }
}

static json_t *json_room(struct room_of_rows its)
{
  return json_pack("{s:I, s:I, s:I}", "in_balance", (json_int_t)its.balance, "room",
                   (json_int_t)its.room, "at_worst", (json_int_t)its.worst);
}

static json_t *json_rows_of(const struct rows_of_count *of)
{
  double bound = bound_of_count(of->counts);
  json_t *object = json_pack("{s:s, s:o, s:s, s:o}", "counts", shown_name(of->counts), "rows",
                             json_room(rows_of(of)), "largest", shown_name(of->widest), "bytes",
                             json_room(rows_text_bytes_of(of)));
  if (bound > 0) json_member(object, "bound", json_real(bound));
  if (of->slots) {
    json_member(object, "slots_for_ranks", json_integer(of->ranks));
    json_member(object, "slot_bytes", json_room(slots_of(of)));
  }
  return object;
}

json_t *json_rows_by_expert(void)
{
  struct rows_of_counts all = rows_text_find_rows();
  json_t *list = json_array();
  for (int i = 0; i < all.n; i++) json_append(list, json_rows_of(&all.at[i]));
  return list;
}
