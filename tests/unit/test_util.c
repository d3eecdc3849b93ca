/* Text from a plan in C and in messages, the arena, and the kinds of errors. */
#include "lua/lua.h"
#include "function_passes/function_passes.h"
#include "unit.h"

#include <limits.h>

static int open_arena(void **state)
{
  (void)state;
  graph_open();
  return 0;
}

/* ------------------------------------------------------------------------------- printable text */

static void prints(const char *s, const char *desired)
{
  assert_string_equal(printable(s), desired);
}

static void test_printable(void **state)
{
  (void)state;
  prints("", "");
  prints("layers.0.wq", "layers.0.wq");
  prints("a */ b", "a %2a/ b");
  prints("a /* b", "a %2f* b");
  prints("*/*", "%2a%2f*");
  prints("what\?\?/", "what%3f?/");
  prints("a\nb\r\tc", "a%0ab%0d%09c");
  prints("a\\", "a%5c");
  prints("\"); system(\"x", "%22); system(%22x");
  prints("$name$", "%24name%24");
  prints("\xe2\x80\xae\xc3\xa9\x7f\x01", "%e2%80%ae%c3%a9%7f%01");
}

/* Whatever the bytes: printable ASCII, no end or start of a comment, no trigraph, no escape, no
   quote, and no hole of a template. */
static void check_printable(const char *s)
{
  const char *p = printable(s);
  for (const char *c = p; *c; c++)
    must(*c >= 0x20 && *c < 0x7f && !strchr("\\\"$", *c), "byte %d is left", *c);
  must(!strstr(p, "*/") && !strstr(p, "/*") &&
           !strstr(p, "?"
                      "?"),
       "'%s'", p);
}

/* ---------------------------------------------------------------------------------- identifiers */

static const char *const keywords[] = {"int",  "while", "restrict", "class", "template", "errno",
                                       "NULL", "xor",   "asm",      "linux", "this",     "I"};

static bool is_identifier(const char *s)
{
  if (!*s || (*s >= '0' && *s <= '9') || *s == '_' || strstr(s, "__")) return false;
  for (; *s; s++) {
    bool digit = *s >= '0' && *s <= '9',
         letter = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z');
    if (!digit && !letter && *s != '_') return false;
  }
  return true;
}

static void check_identifier(const char *s)
{
  const char *id = identifier(s);
  must(is_identifier(id), "'%s' for '%s' is no identifier", id, printable(s));
  for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
    must(strcmp(id, keywords[i]), "'%s' is left", keywords[i]);
  must(strlen(id) <= 63, "'%s' is longer than C tells apart", id);
  assert_string_equal(id, identifier(s));
}

static void test_identifier(void **state)
{
  (void)state;
  assert_string_equal(identifier("weight"), "weight");
  assert_string_equal(identifier("in_proj.weight"), "in_proj_weight");
  assert_string_equal(identifier("0"), "n0");
  assert_string_equal(identifier("12.b"), "n12_b");
  assert_string_equal(identifier("A9"), "A9");
  for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) check_identifier(keywords[i]);
  static const char *const hostile[] = {
      "",   "_x",    "a__b",     ".", "..",  "a..b", "a b",          "a-b",           "a\nb",
      "*/", "\?\?/", "\xc3\xa9", "1", "a;b", "a\"b", "\xe2\x80\xae", "__attribute__", "a._b",
      "_",  "x$y"};
  for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) check_identifier(hostile[i]);
}

/* Macros of the headers that generated files include: a variable of that name would become its
   text. */
static void test_macros_of_headers(void **state)
{
  (void)state;
  static const char *const words[] = {"I",
                                      "NULL",
                                      "M_PI",
                                      "errno",
                                      "math_errhandling",
                                      "xdouble",
                                      "MPI_FLOAT",
                                      "MPI_Fint",
                                      "MPI_IN_PLACE",
                                      "ompi_fortran_integer_t",
                                      "OPENBLAS_CORE_generic",
                                      "INT_MAX",
                                      "NAN",
                                      "INFINITY",
                                      "EOF",
                                      "bool",
                                      "true",
                                      "cudaStreamDefault",
                                      "cudaEventDefault",
                                      "complex",
                                      "noreturn",
                                      "static_assert",
                                      "CHECK_MPI",
                                      "LAUNCH"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    must(strcmp(identifier(words[i]), words[i]), "'%s' is left as it is", words[i]);
}

/* Every word that the compiler keeps is kept from names. */
static void test_keywords_of_c(void **state)
{
  (void)state;
  static const char *const words[] = {
      "auto",     "break",     "case",    "char",     "const",    "continue", "default",  "do",
      "double",   "else",      "enum",    "extern",   "float",    "for",      "goto",     "if",
      "inline",   "int",       "long",    "register", "restrict", "return",   "short",    "signed",
      "sizeof",   "static",    "struct",  "switch",   "typedef",  "union",    "unsigned", "void",
      "volatile", "while",     "new",     "delete",   "catch",    "try",      "throw",    "using",
      "private",  "public",    "virtual", "friend",   "operator", "bool",     "true",     "false",
      "typename", "namespace", "export",  "nullptr",  "wchar_t"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    must(strcmp(identifier(words[i]), words[i]), "'%s' is left as it is", words[i]);
}

/* Names that are not plain differ by what they were. */
static void test_hostile_names_stay_apart(void **state)
{
  (void)state;
  static const char *const name[] = {"",      "a b", "a  b", "a-b",  "a+b", "*/",   "/*",   "int",
                                     "float", "_a",  "__a",  "a__b", "\n",  "\xff", "\xfe", "a\nb"};
  for (size_t i = 0; i < sizeof name / sizeof *name; i++)
    for (size_t k = 0; k < i; k++)
      must(strcmp(identifier(name[i]), identifier(name[k])), "'%s' and '%s' are both %s",
           printable(name[i]), printable(name[k]), identifier(name[i]));
  char x[201], y[201];
  memset(x, 'x', 200);
  memcpy(y, x, 200);
  x[200] = y[200] = 0;
  y[199] = 'y';
  check_identifier(x);
  assert_string_not_equal(identifier(x), identifier(y));
}

static void test_random_bytes(void **state)
{
  (void)state;
  static const char likely[] = "*/?\\\"$_.%\n a0";
  for (int i = 0; i < 20000; i++) {
    char s[24];
    int n = draw_below(sizeof s);
    for (int k = 0; k < n; k++)
      s[k] = draw_below(2) ? likely[draw_below(sizeof likely - 1)] : (char)(1 + draw_below(255));
    s[n] = 0;
    check_printable(s);
    check_identifier(s);
  }
}

/* --------------------------------------------------------------------------------------- hashes */

static void test_hash(void **state)
{
  (void)state;
  /* The published values of 64-bit FNV-1a. */
  assert_true(hash_bytes(HASH_START, "", 0) == UINT64_C(0xcbf29ce484222325));
  assert_true(hash_bytes(HASH_START, "a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
  assert_true(hash_bytes(HASH_START, "foobar", 6) == UINT64_C(0x85944171f73967e8));
  assert_true(hash_bytes(hash_bytes(HASH_START, "foo", 3), "bar", 3) ==
              hash_bytes(HASH_START, "foobar", 6));
}

/* -------------------------------------------------------------------------------------- buffers */

static void test_buffers(void **state)
{
  (void)state;
  struct buffer b = {0};
  size_t length = 0;
  for (int i = 0; i < 2000; i++) {
    put(&b, "%d,", i % 10);
    length += 2;
    assert_int_equal(b.length, length);
    assert_int_equal(b.text[length], 0);
  }
  char large[4000];
  memset(large, 'z', sizeof large - 1);
  large[sizeof large - 1] = 0;
  put(&b, "<%s>", large);
  put_text(&b, "ab\0c", 4);
  assert_int_equal(b.length, length + 2 + sizeof large - 1 + 4);
  assert_memory_equal(b.text + b.length - 6, "z>ab\0c", 6);
  for (int i = 0; i < 2000; i++) {
    assert_int_equal(b.text[2 * i], '0' + i % 10);
    assert_int_equal(b.text[2 * i + 1], ',');
  }
}

/* text and put write what snprintf writes. */
#define same_as_printf(...)                                                                        \
  do {                                                                                             \
    char expected[200];                                                                            \
    struct buffer b = {0};                                                                         \
    snprintf(expected, sizeof expected, __VA_ARGS__);                                              \
    put(&b, __VA_ARGS__);                                                                          \
    assert_string_equal(text(__VA_ARGS__), expected);                                              \
    assert_string_equal(b.text, expected);                                                         \
  } while (0)

static void test_texts(void **state)
{
  (void)state;
  assert_string_equal(text("%s %d", "x", 7), "x 7");
  same_as_printf("%d %d %d", 0, INT_MIN, INT_MAX);
  same_as_printf("%ld|%ld", LONG_MIN, LONG_MAX);
  same_as_printf("%lld%lld", LLONG_MIN, LLONG_MAX);
  same_as_printf("%c%c%s", 'a', '%', "");
  same_as_printf("<%.*s|%.*s|%.*s>", 0, "abc", 2, "abc", 9, "abc");
  same_as_printf("%.*s%s", -1, "abc", "d");
  same_as_printf("%5d|%-4s|%05.1f|%x|%%|%zu|%.3s", 12, "ab", 2.5, 255u, (size_t)7, "abcd");
  char source[] = "abc", *copy = copy_text(source);
  source[0] = 'z';
  assert_string_equal(copy, "abc");
}

/* ------------------------------------------------------------------------------------ the arena */

static void test_memory_is_zero_and_aligned(void **state)
{
  (void)state;
  for (size_t size = 0; size < 300; size++) {
    unsigned char *a = alloc(size), *b = alloc(1);
    assert_int_equal((uintptr_t)a % 16, 0);
    assert_true(b >= a + size);
    for (size_t i = 0; i < size; i++) assert_int_equal(a[i], 0);
    memset(a, 0xff, size);
    assert_int_equal(*b, 0);
  }
}

static void test_arrays_grow(void **state)
{
  (void)state;
  int n = 0, room = 0, *list = NULL;
  for (; n < 1000; n++) {
    GROW(list, n, room);
    assert_true(room > n);
    list[n] = n * n;
  }
  for (int i = 0; i < n; i++) assert_int_equal(list[i], i * i);
}

static void take_too_much(const void *with)
{
  (void)with;
  errors_are_of(plan_options->path = "big.lua");
  for (;;) alloc(100 << 20);
}

static void take_the_impossible(const void *with)
{
  (void)with;
  errors_are_of(plan_options->path = "big.lua");
  alloc(SIZE_MAX - 8);
}

static void test_memory_has_an_end(void **state)
{
  (void)state;
  refused(take_too_much, NULL, 1, "big.lua: error:", "MiB", NULL);
  refused(take_the_impossible, NULL, 1, "big.lua: error:", "MiB", NULL);
}

/* --------------------------------------------------------------------------------------- errors */

static void fail_with_line(const void *with)
{
  (void)with;
  errors_are_of(plan_options->path = "plans/x.lua");
  plan_error(14, "%s is not %d", "this", 3);
}

static void fail_without_line(const void *with)
{
  (void)with;
  errors_are_of(plan_options->path = "plans/x.lua");
  plan_error(0, "nothing");
}

static void fail_at_length(const void *with)
{
  (void)with;
  char *s = alloc(100001);
  memset(s, 'x', 100000);
  plan_error(1, "%s", s);
}

static void fail_in_usage(const void *with)
{
  usage_error(*(const int *)with, "no %s", "way");
}

static void fail_ourselves(const void *with)
{
  (void)with;
  new_graph(1, (int[]){1});
  given(BATCH, "x", parse_shape("2"), (struct layout){0});
  append_op((struct op){.kind = OP_relu, .nin = 1, .in = {0}, .module = NONE, .line = 5});
  bug_at("fuse", 0, "it broke %d", 7);
}

static void test_errors(void **state)
{
  (void)state;
  refused(fail_with_line, NULL, 1, "plans/x.lua:14: error: this is not 3\n", NULL);
  refused(fail_without_line, NULL, 1, "plans/x.lua: error: nothing\n", NULL);
  refused(fail_at_length, NULL, 1, "error: xxx", NULL);
  refused(fail_in_usage, &(int){2}, 2, "tpgen: error: no way\n", NULL);
  refused(fail_in_usage, &(int){3}, 3, "tpgen: error: no way\n", NULL);
  refused(fail_ourselves, NULL, -SIGABRT, "fuse", "operation 0", "relu", "line 5", "it broke 7",
          NULL);
}

/* A child's message is printed by its parent, not by itself. */
static void tell_by_parent(const void *with)
{
  (void)with;
  graph_open();
  errors_are_of(plan_options->path = "plans/x.lua");
  report_child_error();
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    close(STDERR_FILENO);
    child_mode();
    plan_error(3, "by the child");
  }
  int status;
  waitpid(child, &status, 0);
  must(WIFEXITED(status) && WEXITSTATUS(status) == 1, "the child ended with %d", status);
  report_child_error();
}

static void test_a_child_tells_its_parent(void **state)
{
  (void)state;
  refused(tell_by_parent, NULL, 1, "plans/x.lua:3: error: by the child\n", NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_printable),
      cmocka_unit_test(test_identifier),
      cmocka_unit_test(test_keywords_of_c),
      cmocka_unit_test(test_macros_of_headers),
      cmocka_unit_test(test_hostile_names_stay_apart),
      cmocka_unit_test(test_random_bytes),
      cmocka_unit_test(test_hash),
      cmocka_unit_test(test_buffers),
      cmocka_unit_test(test_texts),
      cmocka_unit_test(test_memory_is_zero_and_aligned),
      cmocka_unit_test(test_arrays_grow),
      cmocka_unit_test(test_memory_has_an_end),
      cmocka_unit_test(test_errors),
      cmocka_unit_test(test_a_child_tells_its_parent),
  };
  return cmocka_run_group_tests(tests, open_arena, NULL);
}
