/* unit.h: what the unit tests share: graphs made by hand, golden tables, and cases that run in a
   child process because they may end tpgen, or crash.

   Each test is one program; it includes this header once. */
#ifndef UNIT_H
#define UNIT_H

#include "../tools/splitmix64.h"
#include "lua/lua.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

__attribute__((unused)) static bool is_for_cuda(void)
{
  return target == &targets[TARGET_CUDA];
}

/* ----------------------------------------------------------------------------- cases in a child */

static bool unit_in_child;

__attribute__((format(printf, 1, 2), unused)) static void give_up(const char *format, ...)
{
  char what[2048];
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  if (!unit_in_child) fail_msg("%s", what);
  fprintf(stderr, "%s\n", what);
  exit(99);
}

/* An assertion that says what is wrong, as printf does; in a child it ends the child. */
#define must(fact, ...) ((fact) ? (void)0 : give_up(__VA_ARGS__))

/* How a child ended: its exit status, or minus the signal; and what it wrote to standard error. */
struct ending {
  int status;
  char said[8192];
};

__attribute__((unused)) static struct ending run_child(void (*body)(const void *), const void *with)
{
  struct ending e = {0};
  int said[2], status;
  if (pipe(said)) fail_msg("no pipe");
  fflush(NULL);
  pid_t child = fork();
  if (child < 0) fail_msg("no child: %s", strerror(errno));
  if (child == 0) {
    unit_in_child = true;
    /* cmocka would go on with the next test. */
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    signal(SIGFPE, SIG_DFL);
    signal(SIGILL, SIG_DFL);
    dup2(said[1], STDERR_FILENO);
    close(said[0]);
    close(said[1]);
    body(with);
    exit(0);
  }
  close(said[1]);
  size_t length = 0;
  char rest[512];
  for (ssize_t n; (n = read(said[0], rest, sizeof rest)) > 0;)
    for (ssize_t i = 0; i < n; i++)
      if (length + 1 < sizeof e.said) e.said[length++] = rest[i];
  close(said[0]);
  waitpid(child, &status, 0);
  e.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return e;
}

/* The body holds: it comes to its end. */
__attribute__((unused)) static void passes(void (*body)(const void *), const void *with)
{
  struct ending e = run_child(body, with);
  if (e.status) fail_msg("ended with %d: %s", e.status, e.said);
}

/* The body ends tpgen with this status and a message that has each of these words, NULL last. */
__attribute__((sentinel, unused)) static void refused(void (*body)(const void *), const void *with,
                                                      int status, ...)
{
  struct ending e = run_child(body, with);
  if (e.status != status) fail_msg("ended with %d, not %d: %s", e.status, status, e.said);
  va_list list;
  va_start(list, status);
  for (const char *word; (word = va_arg(list, const char *));)
    if (!strstr(e.said, word)) fail_msg("'%s' is not in: %s", word, e.said);
  va_end(list);
}

/* -------------------------------------------------------------------------------- golden tables */

/* A table of the directory that TPGEN_GOLDEN names, else of tests/golden. */
__attribute__((unused)) static FILE *open_golden(const char *name)
{
  const char *directory = getenv("TPGEN_GOLDEN");
#ifdef TPGEN_GOLDEN_DIR
  if (!directory) directory = TPGEN_GOLDEN_DIR;
#else
  if (!directory) directory = "tests/golden";
#endif
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  FILE *f = fopen(path, "r");
  if (!f) fail_msg("%s: %s", path, strerror(errno));
  return f;
}

/* The next line of a table that is no comment, taken apart at its tabs into at most `most` fields;
   gives how many, 0 at the end. The fields lie in `line`. */
__attribute__((unused)) static int golden_line(FILE *f, char *line, int size, char **field,
                                               int most)
{
  while (fgets(line, size, f)) {
    line[strcspn(line, "\n")] = 0;
    if (*line == '#' || !*line) continue;
    int n = 0;
    for (char *c = line; c && n < most; n++) {
      field[n] = c;
      c = strchr(c, '\t');
      if (c) *c++ = 0;
    }
    return n;
  }
  return 0;
}

/* -------------------------------------------------------------------------- graphs made by hand */

static const struct placement R = {.kind = REPLICATE};
static const struct placement P = {.kind = PARTIAL, .reduction = SUM};

__attribute__((unused)) static struct placement S(int dim) {
  return (struct placement){.kind = SHARD, .dim = dim};
}

/* An empty graph on a mesh of these sizes, whose dimensions are called a, b, c ... */
__attribute__((unused)) static void
new_graph(int ndim, const int *size)
{
  static const char *const name[MAX_MESH] = {"a", "b", "c", "d", "e", "f"};
  graph_open();
  errors_are_of(plan_options->path = "unit.lua");
  plan_options->hash = "0123456789abcdef";
  graph->mesh.ndim = ndim;
  for (int i = 0; i < ndim; i++) {
    graph->mesh.size[i] = size[i];
    graph->mesh.name[i] = name[i];
  }
}

/* "8x6" */
__attribute__((unused)) static struct shape parse_shape(const char *s)
{
  struct shape shape = {0};
  char *end;
  while (*s) {
    shape.size[shape.ndim++] = strtoll(s, &end, 10);
    s = end + (*end == 'x');
  }
  return shape;
}

/* "2x3" into sizes; gives how many. */
__attribute__((unused)) static int parse_mesh(const char *s, int *size)
{
  struct shape shape = parse_shape(s);
  for (int i = 0; i < shape.ndim; i++) size[i] = (int)shape.size[i];
  return shape.ndim;
}

/* "R", "S(1)", "S(1/4)": strided, "S(1)[0]": with its cut order, "P", "P(max)" */
__attribute__((unused)) static struct placement parse_placement(const char *s)
{
  struct placement p = R;
  char *end;
  if (*s == 'P') {
    p = P;
    if (!strncmp(s, "P(max)", 6)) p.reduction = MAX;
    if (!strncmp(s, "P(min)", 6)) p.reduction = MIN;
  }
  if (*s != 'S') return p;
  p = S((int)strtol(s + 2, &end, 10));
  if (*end == '/') p.outer = strtoll(end + 1, &end, 10);
  if (end[1] == '[') p.cut_order = atoi(end + 2);
  return p;
}

/* "R S(0) P" */
__attribute__((unused)) static struct layout parse_layout(const char *s)
{
  struct layout layout = {0};
  for (int i = 0; *s; i++) {
    layout.on[i] = parse_placement(s);
    s += strcspn(s, " ");
    s += *s == ' ';
  }
  return layout;
}

/* The plan's optimizer: w less 0.1 of its gradient; or the average of gradients and that of their
   squares, of which w loses the quotient. Operands: see ir/optimizers.c. */
__attribute__((unused)) static void use_sgd(void)
{
  static struct step_number rate = {.value = 0.1};
  static struct update_step steps[] = {{.kind = OP_mul, .in = {2, 1}},
                                       {.kind = OP_sub, .in = {0, 3}}};
  static struct optimizer sgd = {
      .name = "SGD", .settings = "lr 0.1", .rate = "0.1", .schedule = ""};
  sgd.nnumber = 1;
  sgd.number = &rate;
  sgd.nstep = 2;
  sgd.step = steps;
  sgd.out[0] = 4;
  plan_options->noptimizer = 1;
  plan_options->optimizer = &sgd;
}

__attribute__((unused)) static void use_averages(void)
{
  static struct update_step steps[] = {{.kind = OP_add, .in = {2, 1}},
                                       {.kind = OP_add, .in = {3, 1}},
                                       {.kind = OP_div, .in = {4, 5}}};
  static struct optimizer o = {
      .name = "AdamW", .settings = "lr 0.1", .rate = "0.1", .schedule = ""};
  o.nstate = 2;
  o.state[0] = "exp_avg";
  o.state[1] = "exp_avg_sq";
  o.nstep = 3;
  o.step = steps;
  o.out[0] = 6;
  o.out[1] = 4;
  o.out[2] = 5;
  plan_options->noptimizer = 1;
  plan_options->optimizer = &o;
}

/* A value that is there from the start, placed. */
__attribute__((unused)) static int given(enum role role, const char *name, struct shape shape,
                                         struct layout layout)
{
  int v = add_value(role, name, F32, shape, NONE, 1);
  graph->value[v].layout = layout;
  graph->value[v].placed = true;
  return v;
}

/* Every placement of one mesh dimension that a tensor of ndim dimensions can have; gives how
   many. */
__attribute__((unused)) static int every_placement(int ndim, bool partial, struct placement *list)
{
  int n = 0;
  list[n++] = R;
  for (int d = 0; d < ndim; d++) list[n++] = S(d);
  if (partial) list[n++] = P;
  return n;
}

/* The which-th layout of all those over the mesh: there are n to the power of its dimensions. */
__attribute__((unused)) static struct layout nth_layout(const struct placement *list, int n,
                                                        int which)
{
  struct layout layout = {0};
  for (int i = 0; i < graph->mesh.ndim; i++, which /= n) layout.on[i] = list[which % n];
  return layout;
}

__attribute__((unused)) static int power(int n, int times)
{
  int product = 1;
  while (times--) product *= n;
  return product;
}

/* Numbers that look random and are the same every time. */
static uint64_t unit_seed = 1;

__attribute__((unused)) static uint64_t draw(void)
{
  return splitmix64(&unit_seed);
}

/* From 0 to n - 1. */
__attribute__((unused)) static int draw_below(int n)
{
  return (int)(draw() % (uint64_t)n);
}

/* Between -1 and 1. */
__attribute__((unused)) static double draw_number(void)
{
  return (double)(draw() >> 11) / (double)(UINT64_C(1) << 52) - 1;
}

#endif
