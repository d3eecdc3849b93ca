/* The plan's own operators: which files they may name, and how these are used. */
#include "lua/lua.h"
#include "graph_passes/graph_passes.h"
#include "unit.h"

#include <sys/stat.h>

static char directory[64], outside[64];

static const char *path_of(const char *name)
{
  static char path[2][128];
  static int which;
  which = !which;
  snprintf(path[which], sizeof path[which], "%s/%s", directory, name);
  return path[which];
}

static void write_file(const char *path, const char *bytes, size_t n)
{
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  assert_int_equal(fwrite(bytes, 1, n, f), n);
  fclose(f);
}

static void write_plan(const char *options)
{
  char plan[1024];
  int n = snprintf(plan, sizeof plan,
                   "local twice = operator{name = 'twice', rule = '...->...', %s}\n"
                   "infer{model = nn.Identity(), batch = {input = randn{4, 6}},\n"
                   "  outputs = function(_, batch) return {output = twice(batch.input)} end}\n",
                   options);
  write_file(path_of("plan.lua"), plan, (size_t)n);
}

static void read_plan(const void *path)
{
  graph_open();
  options.plan = path;
  lua();
}

static void test_is_read(void **state)
{
  (void)state;
  write_file(path_of("twice.c"), "void $name$", 11);
  assert_int_equal(symlink("twice.c", path_of("link.c")), 0);
  static const char *const name[] = {"twice.c", "link.c"};
  for (int i = 0; i < 2; i++) {
    char kernel[64];
    snprintf(kernel, sizeof kernel, "kernel = '%s'", name[i]);
    write_plan(kernel);
    read_plan(path_of("plan.lua"));
    assert_int_equal(graph->ncustom, 1);
    assert_string_equal(graph->custom[0].kernel[LANGUAGE_C], "void $name$");
    assert_null(graph->custom[0].kernel[LANGUAGE_CUDA]);
  }
}

/* The hash is of the kernel of the target too. */
static void test_hash(void **state)
{
  (void)state;
  write_file(path_of("a.c"), "void a", 6);
  write_file(path_of("a.cu"), "void a", 6);
  write_plan("kernel = 'a.c', kernel_cuda = 'a.cu'");
  read_plan(path_of("plan.lua"));
  const char *before = plan_options->hash;
  write_file(path_of("a.cu"), "void b", 6);
  read_plan(path_of("plan.lua"));
  assert_string_equal(before, plan_options->hash);
  write_file(path_of("a.c"), "void b", 6);
  read_plan(path_of("plan.lua"));
  assert_string_not_equal(before, plan_options->hash);
}

static void refuse(const char *options, const char *why)
{
  write_plan(options);
  refused(read_plan, path_of("plan.lua"), 1, "plan.lua:1: error: ", why, NULL);
}

static void test_is_refused(void **state)
{
  (void)state;
  static char large[(1 << 18) + 1];
  memset(large, ' ', sizeof large);
  write_file(path_of("large.c"), large, sizeof large);
  write_file(path_of("zero.c"), "a\0b", 3);
  write_file(outside, "secret", 6);
  assert_int_equal(symlink(outside, path_of("out.c")), 0);
  assert_int_equal(symlink("/tmp", path_of("tmp")), 0);
  assert_int_equal(mkfifo(path_of("pipe.c"), 0600), 0);
  assert_int_equal(mkdir(path_of("folder.c"), 0700), 0);

  refuse("kernel = 'none.c'", "operator 'twice': cannot read none.c: No such file");
  refuse("kernel = 'large.c'", "it has 262145 bytes; at most 262144 are read");
  refuse("kernel = 'zero.c'", "it is not text");
  refuse("kernel = 'pipe.c'", "it is not a file");
  refuse("kernel = 'folder.c'", "it is not a file");
  refuse("kernel = 'out.c'", "it is outside of the folder of the plan");
  char below[128];
  snprintf(below, sizeof below, "kernel = 'tmp/%s'", strrchr(outside, '/') + 1);
  refuse(below, "it is outside of the folder of the plan");
}

static int make_directory(void **state)
{
  (void)state;
  snprintf(directory, sizeof directory, "/tmp/tpgen_operators_%d", (int)getpid());
  snprintf(outside, sizeof outside, "/tmp/tpgen_outside_%d.c", (int)getpid());
  return mkdir(directory, 0700);
}

static int remove_directory(void **state)
{
  (void)state;
  static const char *const name[] = {"plan.lua", "twice.c", "link.c",  "a.c",
                                     "a.cu",     "large.c", "zero.c",  "out.c",
                                     "tmp",      "pipe.c",  "folder.c"};
  for (size_t i = 0; i < sizeof name / sizeof *name; i++) remove(path_of(name[i]));
  remove(outside);
  return rmdir(directory);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_is_read), cmocka_unit_test(test_hash),
                                     cmocka_unit_test(test_is_refused)};
  return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
