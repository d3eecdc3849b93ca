/* Which collectives share a bucket, against PyTorch's results for random graphs (tests/golden,
   buckets.txt; or TPGEN_GOLDEN's): the members of every bucket and the order of the buckets.
   PyTorch uses the first bucket's cap for all. */

#include "function_passes/function_passes.h"
#include "unit.h"

/* A node of a case: an input, a sum, or a collective that is started and waited for. */
struct node {
  char name[16], group[16];
  bool is_collective;
  int64_t rows, columns; /* of its result */
  enum type type;
  int64_t moved; /* what it takes or makes, whichever is more: bytes */
  int in[2];
};

enum { MOST_NODES = 64, MOST_CAPS = 8, MOST_BUCKETS = 32 };

struct scene {
  int number, n;
  enum op_kind kind;
  struct node node[MOST_NODES];
  int ncap;
  int64_t cap[MOST_CAPS];
  int nbucket;
  char bucket[MOST_BUCKETS][256];
};

static int node_called(const struct scene *s, const char *name)
{
  for (int i = 0; i < s->n; i++)
    if (!strcmp(s->node[i].name, name)) return i;
  give_up("case %d: no node %s", s->number, name);
  return NONE;
}

/* "case 3  cap=0.5,2.0  kind=all_gather" */
static void begin_scene(struct scene *s, const char *line)
{
  char caps[64], kind[32];
  *s = (struct scene){0};
  must(sscanf(line, "case %d cap=%63s kind=%31s", &s->number, caps, kind) == 3, "%s", line);
  s->kind = !strcmp(kind, "all_gather") ? OP_all_gather : OP_reduce_scatter;
  for (char *at = strtok(caps, ","); at; at = strtok(NULL, ","))
    s->cap[s->ncap++] = (int64_t)(strtod(at, NULL) * 1024 * 1024);
}

static void add_input(struct scene *s, const char *shape, const char *type)
{
  struct node *n = &s->node[s->n];
  must(sscanf(shape, "%" SCNd64 "x%" SCNd64, &n->rows, &n->columns) == 2, "%s", shape);
  n->type = !strcmp(type, "f32") ? F32 : BF16;
  n->in[0] = n->in[1] = NONE;
}

static void add_moved(struct scene *s, const char *from, const char *ranks, const char *group)
{
  struct node *n = &s->node[s->n];
  int in = node_called(s, from), size = 0;
  const struct node *source = &s->node[in];
  must(sscanf(ranks, "ranks=%d", &size) == 1 && !strncmp(group, "group=", 6), "%s %s", ranks,
       group);
  strcpy(n->group, group + 6);
  n->is_collective = true;
  n->in[0] = n->in[1] = in;
  n->rows = s->kind == OP_all_gather ? source->rows * size : source->rows / size;
  n->columns = source->columns;
  n->type = source->type;
  int64_t rows = s->kind == OP_all_gather ? n->rows : source->rows;
  n->moved = rows * n->columns * type_bytes(n->type);
}

static void add_sum(struct scene *s, const char *a, const char *b)
{
  struct node *n = &s->node[s->n];
  n->in[0] = node_called(s, a);
  n->in[1] = node_called(s, b);
  n->rows = s->node[n->in[0]].rows;
  n->columns = s->node[n->in[0]].columns;
  n->type = s->node[n->in[0]].type;
}

static void add_line(struct scene *s, const char *line)
{
  char word[5][32];
  int words = sscanf(line, "%31s %31s %31s %31s %31s", word[0], word[1], word[2], word[3], word[4]);
  must(words >= 4 && s->n < MOST_NODES && strlen(word[0]) < 16, "%s", line);
  strcpy(s->node[s->n].name, word[0]);
  if (!strcmp(word[1], "input"))
    add_input(s, word[2], word[3]);
  else if (!strcmp(word[1], "add"))
    add_sum(s, word[2], word[3]);
  else
    add_moved(s, word[2], word[3], word[4]);
  s->n++;
}

/* Marks all that the node needs. */
static void mark_needs(const struct scene *s, int node, bool *needed)
{
  for (int i = 0; i < 2; i++) {
    int in = s->node[node].in[i];
    if (in == NONE || needed[in]) continue;
    needed[in] = true;
    mark_needs(s, in, needed);
  }
}

/* Compares what is chosen with what PyTorch does; gives how many buckets there are. */
static int compare(const struct scene *s)
{
  struct single single[MOST_NODES] = {0};
  int node[MOST_NODES], n = 0;
  for (int i = 0; i < s->n; i++)
    if (s->node[i].is_collective) node[n++] = i;
  for (int i = 0; i < n; i++) {
    const struct node *at = &s->node[node[i]];
    bool needed[MOST_NODES] = {0};
    mark_needs(s, node[i], needed);
    uint64_t *needs = alloc(sizeof *needs); /* of no more than 64 */
    for (int k = 0; k < n; k++) *needs |= (uint64_t)needed[node[k]] << k;
    single[i] = (struct single){.kind = s->kind,
                                .group = at->group[0],
                                .type = at->type,
                                .unit = NONE,
                                .bytes = at->moved,
                                .needs = needs};
  }
  struct buckets found = choose_in_order(single, n, &(struct caps){1, s->cap});
  must(found.n == s->nbucket, "case %d: %d buckets, not %d", s->number, found.n, s->nbucket);
  for (int i = 0; i < found.n; i++) {
    struct buffer b = {0};
    put(&b, "bucket");
    for (int k = 0; k < found.at[i].n; k++) put(&b, " %s", s->node[node[found.at[i].at[k]]].name);
    must(!strcmp(b.text, s->bucket[i]), "case %d: %s, not %s", s->number, b.text, s->bucket[i]);
  }
  return found.n;
}

static void test_golden_buckets(void **state)
{
  (void)state;
  static struct scene s;
  char line[512];
  int scenes = 0, buckets = 0;
  FILE *f = open_golden("buckets.txt");
  while (fgets(line, sizeof line, f)) {
    line[strcspn(line, "\n")] = 0;
    if (line[0] == '#' || !line[0]) continue;
    if (!strncmp(line, "bucket ", 7)) {
      must(s.nbucket < MOST_BUCKETS && strlen(line) < 256, "%s", line);
      strcpy(s.bucket[s.nbucket++], line);
    } else if (!strncmp(line, "case ", 5)) {
      if (scenes++) buckets += compare(&s);
      begin_scene(&s, line);
    } else {
      add_line(&s, line);
    }
  }
  fclose(f);
  assert_true(scenes > 0);
  buckets += compare(&s);
  printf("%d cases, %d buckets\n", scenes, buckets);
}

/* The members of all buckets as one text: "0 1 | 3 4". */
static const char *buckets_text(const struct buckets *found)
{
  struct buffer b = {0};
  put(&b, "%s", "");
  for (int i = 0; i < found->n; i++) {
    if (i) put(&b, " |");
    for (int k = 0; k < found->at[i].n; k++) put(&b, "%s%d", i || k ? " " : "", found->at[i].at[k]);
  }
  return b.text;
}

/* So many gathers of one byte, in units of which each takes two. */
static void make_singles(struct single *s, int n)
{
  for (int i = 0; i < n; i++)
    s[i] = (struct single){.kind = OP_all_gather, .unit = i / 2, .bytes = 1};
}

static void test_caps_and_units(void **state)
{
  (void)state;
  struct single s[8];
  make_singles(s, 8);
  struct caps none = {0}, growing = {2, (int64_t[]){1, 3}}, huge = {1, (int64_t[]){INT64_MAX}};
  struct buckets found = choose_of_one_kind(s, 8, &none);
  assert_string_equal(buckets_text(&found), "0 1 | 2 3 | 4 5 | 6 7");
  for (int i = 0; i < 8; i++) s[i].unit = i % 2;
  found = choose_of_one_kind(s, 8, &none);
  assert_string_equal(buckets_text(&found), "0 2 4 6 | 1 3 5 7");
  found = choose_in_order(s, 8, &none);
  assert_string_equal(buckets_text(&found), "");
  found = choose_of_one_kind(s, 8, &growing);
  assert_string_equal(buckets_text(&found), "2 4 6 | 3 5 7");
  for (int i = 0; i < 8; i++) s[i].unit = NONE;
  found = choose_in_order(s, 8, &growing);
  assert_string_equal(buckets_text(&found), "1 2 3 | 4 5 6");
  s[4].bytes = INT64_MAX;
  found = choose_in_order(s, 8, &huge);
  assert_string_equal(buckets_text(&found), "0 1 2 3 | 5 6 7");
}

/* Another kind between does not part those of one; another group does. */
static void test_what_parts(void **state)
{
  (void)state;
  struct single s[5];
  make_singles(s, 5);
  for (int i = 0; i < 5; i++) s[i].unit = NONE;
  s[2].kind = OP_reduce_scatter;
  struct buckets found = choose_in_order(s, 5, &(struct caps){0});
  assert_string_equal(buckets_text(&found), "0 1 3 4");
  s[2] = s[0];
  s[2].group = 1;
  found = choose_in_order(s, 5, &(struct caps){0});
  assert_string_equal(buckets_text(&found), "0 1 | 3 4");
  found = choose_of_one_kind(s, 5, &(struct caps){0});
  assert_string_equal(buckets_text(&found), "0 1 3 4");
}

int main(void)
{
  graph_open();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_golden_buckets),
      cmocka_unit_test(test_caps_and_units),
      cmocka_unit_test(test_what_parts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
