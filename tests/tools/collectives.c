/* collectives plan.json [traffic | moves]: prints the collectives of a step.

   Leaves  `phase kind group bytes`, a line for each; with `traffic` `kind group times bytes sent
           received` instead; with `moves` `sent received K...`, a line for each redistribution that
           has collectives: the numbers, from 1, of its steps in the list. */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 65536 };

struct collective {
  const char *phase, *kind, *group, *why;
  json_int_t bytes, sent, received;
  int times, line;
  bool taken; /* by a redistribution */
};

static struct collective list[MOST];
static size_t collectives;

static bool fail(const char *what, size_t which, const char *why)
{
  fprintf(stderr, "collectives: %s %zu: %s\n", what, which, why);
  return false;
}

static bool read_list(json_t *plan)
{
  json_t *array = json_object_get(plan, "collectives"), *one;
  json_error_t error;
  size_t i;
  if (!json_is_array(array) || json_array_size(array) > MOST) {
    fprintf(stderr, "collectives: no file of JSON with a list of collectives\n");
    return false;
  }
  json_array_foreach(array, i, one)
  {
    struct collective *c = &list[collectives++];
    if (json_unpack_ex(one, &error, 0, "{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:i, s:i}", "phase",
                       &c->phase, "kind", &c->kind, "group", &c->group, "why", &c->why, "bytes",
                       &c->bytes, "sent", &c->sent, "received", &c->received, "times", &c->times,
                       "line", &c->line))
      return fail("collective", i + 1, error.text);
  }
  return true;
}

/* The first in the list that matches this step and belongs to no redistribution yet; 0: none. */
static size_t find(const struct collective *step)
{
  for (size_t i = 0; i < collectives; i++) {
    struct collective *c = &list[i];
    if (c->taken || strcmp(c->kind, step->kind) || strcmp(c->group, step->group) ||
        strcmp(c->phase, step->phase) || strcmp(c->why, step->why) || c->line != step->line ||
        c->times != step->times || c->sent != step->sent || c->received != step->received)
      continue;
    c->taken = true;
    return i + 1;
  }
  return 0;
}

/* One redistribution, the `which`-th. */
static bool print_move(json_t *move, size_t which)
{
  struct collective step;
  json_int_t sent, received;
  json_error_t error;
  json_t *steps, *one;
  size_t i, n = 0;
  if (json_unpack_ex(move, &error, 0, "{s:o, s:I, s:I, s:i, s:i, s:s, s:s}", "steps", &steps,
                     "sent", &sent, "received", &received, "times", &step.times, "line", &step.line,
                     "phase", &step.phase, "why", &step.why))
    return fail("redistribution", which, error.text);
  json_array_foreach(steps, i, one)
  {
    if (!json_object_get(one, "sent")) continue;
    if (json_unpack_ex(one, &error, 0, "{s:s, s:s, s:I, s:I}", "kind", &step.kind, "over",
                       &step.group, "sent", &step.sent, "received", &step.received))
      return fail("redistribution", which, error.text);
    size_t at = find(&step);
    if (!at) return fail("redistribution", which, "a step that is not in the list of collectives");
    if (n++ == 0) printf("%lld %lld", (long long)sent, (long long)received);
    printf(" %zu", at);
  }
  if (n) printf("\n");
  if (!n && (sent || received)) return fail("redistribution", which, "bytes, but no collective");
  return true;
}

static bool print_moves(json_t *plan)
{
  json_t *move;
  size_t i;
  json_array_foreach(json_object_get(plan, "redistributions"), i, move)
  {
    if (!print_move(move, i + 1)) return false;
  }
  for (i = 0; i < collectives; i++)
    if (!list[i].taken) return fail("collective", i + 1, "it is a step of no redistribution");
  return true;
}

static void print(const struct collective *c, bool traffic)
{
  if (traffic)
    printf("%s %s %d %lld %lld %lld\n", c->kind, c->group, c->times, (long long)c->bytes,
           (long long)c->sent, (long long)c->received);
  else
    printf("%s %s %s %lld\n", c->phase, c->kind, c->group, (long long)c->bytes);
}

int main(int argc, char **argv)
{
  json_error_t error;
  const char *what = argc == 3 ? argv[2] : "";
  bool traffic = !strcmp(what, "traffic"), moves = !strcmp(what, "moves");
  if (argc < 2 || argc > 3 || (argc == 3 && !traffic && !moves)) {
    fprintf(stderr, "usage: collectives plan.json [traffic | moves]\n");
    return 1;
  }
  json_t *plan = json_load_file(argv[1], JSON_REJECT_DUPLICATES, &error);
  if (!read_list(plan)) return 1;
  if (moves) return print_moves(plan) ? 0 : 1;
  for (size_t i = 0; i < collectives; i++) print(&list[i], traffic);
  return 0;
}
