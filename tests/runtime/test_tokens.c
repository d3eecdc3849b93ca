// Tokens: every form of file, the refusals and their messages, and the tokens of a batch.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/program.h"
#include "temporary.h"

// ---- a program that reads tokens, of ranks that the test can be --------------------------------

enum { INPUT, TARGET, MASK, TENSORS, MEMORY = 4096 };
enum { ROWS = 4, COLUMNS = 6, EACH = ROWS * COLUMNS };

static struct tensor tensors[TENSORS] = {
    [INPUT] = {{"input", NULL},
               {NULL, NULL},
               1,
               BATCH,
               I32,
               0,
               0,
               2,
               {ROWS, COLUMNS},
               {ROWS, COLUMNS},
               {TOKENS, {300, 0}}},
    [TARGET] = {{"target", NULL},
                {NULL, NULL},
                1,
                BATCH,
                I64,
                1024,
                0,
                2,
                {ROWS, COLUMNS},
                {ROWS, COLUMNS},
                {TOKENS, {300, 1}}},
    [MASK] =
        {{"mask", NULL}, {NULL, NULL}, 1, BATCH, F32, 2048, 0, 1, {4}, {4}, {CONSTANT, {0, 0}}},
};
static struct own_part own[TENSORS];
static char space[MEMORY];
void *rank_memory = space;

static struct program this_program = {
    .world = 1, .bytes = MEMORY, .tensors = tensors, .ntensors = TENSORS};
static struct rank this_rank = {.parts = own};

const struct program *program = &this_program;
const struct rank *rank = &this_rank;

// As it is, but for whose program it is.
#include "../../runtime/data/input_files.c"
#include "../../runtime/data/tokens.c"

void target_put(void *to, const void *from, size_t bytes)
{
  memcpy(to, from, bytes);
}

// What data_set.c does for all inputs.
void rows_pad(int row, long first, void *stage)
{
  const struct tensor *t = &tensors[row];
  (void)stage;
  for (long r = first < own[row].first[0] ? own[row].first[0] : first;
       r < own[row].first[0] + t->here[0]; r++)
    memset(space + t->offset +
               (size_t)((r - own[row].first[0]) * t->here[1]) * (t->type == I64 ? 8 : 4),
           0xff, (size_t)t->here[1] * (t->type == I64 ? 8 : 4));
}

// This rank is one of rows x columns, each of which has a part of every input.
static void become(int id, int rows, int columns)
{
  const int parts[] = {rows, columns}, at[] = {id / columns, id % columns};
  this_program.world = rows * columns;
  this_rank.id = id;
  for (int t = INPUT; t <= TARGET; t++)
    for (int d = 0; d < 2; d++) {
      own[t].first[d] = part_first(tensors[t].of[d], parts[d], at[d]);
      tensors[t].here[d] = part_size(tensors[t].of[d], parts[d], at[d]);
    }
}

// ---- files -------------------------------------------------------------------------------------

// Token i of a file, of those that it can hold.
static uint32_t token_of(size_t i, size_t size)
{
  return (uint32_t)(i * 7 + 3) % (size == 1 ? 256 : 300);
}

static void put_number(FILE *f, uint32_t value, size_t size)
{
  for (size_t i = 0; i < size; i++) fputc((int)(value >> 8 * i & 0xff), f);
}

// A file of so many tokens of `size` bytes; magic: with llm.c's header, which states `stated`
// tokens.
static void write_tokens(const char *name, size_t size, size_t count, uint32_t magic,
                         uint32_t version, uint32_t stated)
{
  snprintf(path, sizeof path, "%s/%s", directory, name);
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  const uint32_t header[3] = {magic, version, stated};
  for (int i = 0; magic && i < 256; i++) put_number(f, i < 3 ? header[i] : 0, 4);
  for (size_t i = 0; i < count; i++) put_number(f, token_of(i, size), size);
  assert_int_equal(fclose(f), 0);
}

static struct tokens text;
static struct input_files files;

static bool open_files(const char *const *names, const char *form, struct failure *why)
{
  return input_files_find(&files, names, why) && tokens_open(&text, &files, form, why);
}

static void closed(void)
{
  tokens_close(&text);
  input_files_free(&files);
}

static void opened(const char *form)
{
  struct failure why = {""};
  if (!open_files((const char *[]){path, NULL}, form, &why)) fail_msg("%s", why.text);
}

static void read_batch(long i)
{
  struct failure why = {""};
  if (!tokens_fill(&text, (uint64_t)i * EACH, &why)) fail_msg("%s", why.text);
}

static void refused(const char *form, const char *says)
{
  struct failure why = {""};
  if (open_files((const char *[]){path, NULL}, form, &why)) fail_msg("taken, though: %s", says);
  if (!strstr(why.text, says)) fail_msg("said: %s\nnot: %s", why.text, says);
  closed();
}

// ---- tests -------------------------------------------------------------------------------------

// Every rank's part of batch i, which begins behind so many tokens, is what the rule says.
static void check_batch_at(size_t begin, long i, size_t length, size_t size)
{
  const size_t period = length - (size_t)tensors[TARGET].init.of[1];
  struct failure why = {""};
  if (!tokens_fill(&text, begin, &why)) fail_msg("%s", why.text);
  (void)i;
  for (int t = INPUT; t <= TARGET; t++) {
    const long *here = tensors[t].here, *first = own[t].first;
    for (long k = 0; k < here[0] * here[1]; k++) {
      long row = first[0] + k / here[1], column = first[1] + k % here[1];
      size_t place = (begin + (size_t)(row * COLUMNS + column)) % period;
      size_t token = place + (size_t)tensors[t].init.of[1];
      long long got = t == INPUT ? ((int32_t *)(void *)space)[k]
                                 : ((int64_t *)(void *)(space + tensors[TARGET].offset))[k];
      assert_int_equal(got, token_of(token, size));
    }
  }
}

static void check_batch(long i, size_t length, size_t size)
{
  check_batch_at((size_t)i * EACH, i, length, size);
}

static void batches(void **state)
{
  (void)state;
  static const struct {
    const char *name, *form;
    size_t size;
    uint32_t magic, version;
  } rows[] = {
      {"text.txt", NULL, 1, 0, 0},       {"tokens.u16", NULL, 2, 0, 0},
      {"tokens.uint16", NULL, 2, 0, 0},  {"tokens.u32", NULL, 4, 0, 0},
      {"tokens.uint32", NULL, 4, 0, 0},  {"flat.bin", "uint16", 2, 0, 0},
      {"flat.bin", "uint32", 4, 0, 0},   {"any.u16", "bytes", 1, 0, 0},
      {"llm.bin", NULL, 2, 20240520, 1}, {"llama.bin", NULL, 4, 20240801, 7},
  };
  static const size_t lengths[] = {25, 26, 27, 49, 50, 97};
  static const int meshes[][2] = {{1, 1}, {2, 1}, {1, 2}, {3, 1}, {2, 2}, {1, 4}, {5, 1}, {1, 7}};
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
      size_t length = lengths[l];
      write_tokens(rows[r].name, rows[r].size, length, rows[r].magic, rows[r].version,
                   (uint32_t)length);
      opened(rows[r].form);
      for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
        for (int id = 0; id < meshes[m][0] * meshes[m][1]; id++) {
          become(id, meshes[m][0], meshes[m][1]);
          for (long i = 0; i < 12; i++) check_batch(i, length, rows[r].size);
          check_batch(1234567890, length, rows[r].size);
        }
      closed();
    }
  become(0, 1, 1);
}

// Inputs that begin further on: the file begins again where the furthest has had its last token.
static void further_on(void **state)
{
  (void)state;
  tensors[TARGET].init.of[1] = 5;
  write_tokens("text.txt", 1, EACH + 4, 0, 0, 0);
  refused(NULL, "it has 28 bytes, but a batch of 24 needs at least 29");
  for (size_t length = EACH + 5; length < 3 * EACH; length++) {
    write_tokens("text.txt", 1, length, 0, 0, 0);
    opened(NULL);
    for (long i = 0; i < 20; i++) check_batch(i, length, 1);
    closed();
  }
  tensors[TARGET].init.of[1] = 1;
}

// Several files are one text, cut anywhere.
static void several_files(void **state)
{
  (void)state;
  char parts[3][140];
  struct failure why = {""};
  const char *names[] = {parts[0], parts[1], parts[2], NULL};
  static const size_t lengths[] = {25, 40, 97};
  for (size_t l = 0; l < 3; l++)
    for (size_t cut = 1; cut < lengths[l] - 1; cut++) {
      const size_t ends[] = {0, cut, (cut + lengths[l]) / 2, lengths[l]};
      for (int k = 0; k < 3; k++) {
        snprintf(parts[k], sizeof parts[k], "%s/part%d.u16", directory, k);
        FILE *f = fopen(parts[k], "wb");
        assert_non_null(f);
        for (size_t i = ends[k]; i < ends[k + 1]; i++) put_number(f, token_of(i, 2), 2);
        assert_int_equal(fclose(f), 0);
      }
      if (!open_files(names, NULL, &why)) fail_msg("%s", why.text);
      assert_int_equal(text.length, lengths[l]);
      for (long i = 0; i < 9; i++) check_batch(i, lengths[l], 2);
      closed();
      snprintf(path, sizeof path, "%s/part[0-2].u16", directory);
      opened(NULL); // the same by a pattern, in the order of names
      for (long i = 0; i < 9; i++) check_batch(i, lengths[l], 2);
      closed();
    }
  write_tokens("other.txt", 1, 100, 0, 0, 0);
  names[2] = path;
  assert_false(open_files(names, NULL, &why));
  assert_non_null(strstr(why.text, "other.txt: it has bytes, but"));
  assert_non_null(strstr(why.text, "part0.u16 has tokens of uint16: they are one text"));
  closed();
  snprintf(path, sizeof path, "%s/none*.u16", directory);
  refused(NULL, "none*.u16: there is no such file, nor one that it fits");
}

// Windows in an order, on every mesh; what an epoch's last batch lacks is filled up.
static void windows(void **state)
{
  (void)state;
  static const int meshes[][2] = {{1, 1}, {2, 1}, {1, 2}, {3, 1}, {2, 2}};
  const struct order order = {.samples = 16, .batch = ROWS, .shuffles = true, .seed = 5};
  const struct sample_range of = {.epoch = 3, .sample = 13, .count = 3};
  struct failure why = {""};
  write_tokens("t.u16", 2, 101, 0, 0, 0);
  opened(NULL);
  assert_int_equal(tokens_windows(&text), 16); // of 6, and one more token behind the last
  for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
    for (int id = 0; id < meshes[m][0] * meshes[m][1]; id++) {
      become(id, meshes[m][0], meshes[m][1]);
      if (!tokens_fill_windows(&text, &order, &of, &why)) fail_msg("%s", why.text);
      for (int t = INPUT; t <= TARGET; t++)
        for (long k = 0; k < tensors[t].here[0] * tensors[t].here[1]; k++) {
          const long row = own[t].first[0] + k / tensors[t].here[1];
          const long column = own[t].first[1] + k % tensors[t].here[1];
          const long long got = t == INPUT
                                    ? ((int32_t *)(void *)space)[k]
                                    : ((int64_t *)(void *)(space + tensors[TARGET].offset))[k];
          const uint64_t window = order_sample(&order, 3, 13 + (uint64_t)row);
          const size_t token = (size_t)window * COLUMNS + (size_t)column + (t == TARGET);
          assert_int_equal(got, row < 3 ? (long long)token_of(token, 2) : -1);
        }
    }
  become(0, 1, 1);
  closed();
}

// Rows that are cut take several pieces of the file; many take several pieces of memory.
static void summaries(void **state)
{
  (void)state;
  write_tokens("text.txt", 1, 1000, 0, 0, 0);
  opened(NULL);
  assert_non_null(strstr(text.summary, "text.txt, 1000 bytes"));
  closed();
  write_tokens("llama.bin", 4, 1000, 20240801, 7, 1000);
  opened(NULL);
  assert_non_null(strstr(text.summary, "llama.bin, 1000 tokens of uint32"));
  closed();
  assert_int_equal(tokens_of_batch(), EACH);
}

static void bad_files(void **state)
{
  (void)state;
  snprintf(path, sizeof path, "%s/none", directory);
  refused(NULL, "none: cannot open: No such file");
  snprintf(path, sizeof path, "%s", directory);
  refused(NULL, "not a file but a folder");
  snprintf(path, sizeof path, "%s/fifo", directory);
  assert_int_equal(mkfifo(path, 0666), 0);
  refused(NULL, "fifo: not a file but a FIFO");
  unlink(path);
  write_tokens("text.txt", 1, 24, 0, 0, 0);
  refused(NULL, "text.txt: it has 24 bytes, but a batch of 24 needs at least 25");
  write_tokens("text.txt", 1, 0, 0, 0, 0);
  refused(NULL, "it has 0 bytes, but");
  write_tokens("t.u16", 1, 101, 0, 0, 0);
  refused(NULL, "its 101 bytes are not a whole number of tokens of uint16");
  write_tokens("t.bin", 4, 102, 0, 0, 0);
  refused(NULL, "too few for the header of llm.c's .bin");
  write_tokens("t.bin", 4, 1024, 0, 0, 0);
  refused(NULL, "it begins with 3, 10, which is not a header of llm.c's .bin");
  write_tokens("t.bin", 2, 100, 20240520, 2, 100);
  refused(NULL, "it begins with 20240520, 2, which is not a header");
  write_tokens("t.bin", 2, 100, 20240801, 1, 100);
  refused(NULL, "is not a header");
  write_tokens("t.bin", 2, 100, 20240520, 1, 101);
  refused(NULL, "its header says 101 tokens, which take 202 bytes, but 200 follow it: the file is "
                "cut short");
  write_tokens("t.bin", 2, 100, 20240520, 1, 99);
  refused(NULL, "its header says 99 tokens, which take 198 bytes, but 200 follow it");
  write_tokens("t.bin", 4, 100, 20240801, 7, 0xffffffff);
  refused(NULL, "its header says 4294967295 tokens");
  write_tokens("t.bin", 2, 20, 20240520, 1, 20);
  refused(NULL, "it has 20 tokens of uint16, but a batch of 24 needs at least 25");
  refused("int8", "--tokens int8: there are bytes, uint16 and uint32");
}

static void changed_token(size_t token, size_t size, uint32_t value)
{
  FILE *f = fopen(path, "r+b");
  assert_non_null(f);
  assert_int_equal(fseek(f, (long)(token * size), SEEK_SET), 0);
  put_number(f, value, size);
  assert_int_equal(fclose(f), 0);
}

// Which of the ranks finds a token too large in the batches first .. last - 1; -1: none.
static int finder(long first, long last, const char *says)
{
  struct failure why = {""};
  int found = -1;
  for (int id = 0; id < 3; id++) {
    become(id, 3, 1);
    if (tokens_check(&text, (uint64_t)first * EACH, (uint64_t)last * EACH, &why)) continue;
    if (!strstr(why.text, says)) fail_msg("said: %s\nnot: %s", why.text, says);
    assert_int_equal(found, -1);
    found = id;
  }
  become(0, 1, 1);
  return found;
}

static void large_tokens(void **state)
{
  (void)state;
  write_tokens("t.u16", 2, 1000, 0, 0, 0);
  changed_token(100, 2, 300);
  const char *says = "t.u16: token 100 is 300, which is not below the vocabulary of 300";
  opened(NULL);
  assert_int_equal(finder(0, 4, says), -1);  // 0 .. 96
  assert_int_equal(finder(5, 40, says), -1); // 120 .. 960
  assert_int_equal(finder(4, 5, says), 0);   // 96 .. 120
  assert_int_equal(finder(0, 5, says), 2);
  assert_int_equal(finder(0, 40, says), 0);
  assert_int_equal(finder(39, 42, says), 0); // begins again within
  assert_int_equal(finder(40, 40, says), -1);
  changed_token(100, 2, 299);
  assert_int_equal(finder(0, 1000000, says), -1);
  changed_token(999, 2, 65535); // the last one of the file
  says = "token 999 is 65535";
  assert_int_equal(finder(0, 41, says), -1); // 0 .. 984
  assert_int_equal(finder(0, 42, says), 2);
  assert_int_equal(finder(0, 1000000, says), 2);
  closed();

  tensors[INPUT].init.of[0] = 256; // no byte is too large
  write_tokens("t.txt", 1, 1000, 0, 0, 0);
  opened(NULL);
  assert_int_equal(finder(0, 1000, ""), -1);
  closed();
  // What a use of the tokens takes is what counts where it is less.
  static const struct index_use uses[] = {{"gather", 3, 400, false, 0, INPUT, {0}, {0}},
                                          {"embedding", 7, 250, false, 0, TARGET, {0}, {0}},
                                          {"one_hot", 9, 100, false, 0, -1, {0}, {0}}};
  this_program.plan = "plan.lua";
  this_program.index_uses = uses;
  this_program.nindex_uses = 3;
  opened(NULL);
  assert_int_equal(finder(0, 1, ""), -1);
  assert_int_equal(finder(0, 2, "token 36 is 255, but embedding at plan.lua:7 takes 0 to 249"), 2);
  closed();
  this_program.nindex_uses = 0;
  tensors[TARGET].init.of[0] = 200;
  opened(NULL);
  struct failure why = {""};
  assert_false(tokens_check(&text, 0, 2 * EACH, &why));
  assert_non_null(strstr(why.text, "token 29 is 206, which is not below the vocabulary of 200"));
  closed();
  tensors[INPUT].init.of[0] = tensors[TARGET].init.of[0] = 300;
}

// A file that is cut while it is used is an error that has its name.
static void cut_while_used(void **state)
{
  (void)state;
  struct failure why = {""};
  write_tokens("text.txt", 1, 1000, 0, 0, 0);
  opened(NULL);
  read_batch(0);
  assert_int_equal(truncate(path, 60), 0);
  read_batch(1);
  assert_false(tokens_fill(&text, 2 * EACH, &why));
  assert_non_null(strstr(why.text, "text.txt: the file ended while it was read"));
  closed();
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(batches),       cmocka_unit_test(further_on),
      cmocka_unit_test(summaries),     cmocka_unit_test(bad_files),
      cmocka_unit_test(large_tokens),  cmocka_unit_test(cut_while_used),
      cmocka_unit_test(several_files), cmocka_unit_test(windows),
  };
  return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
