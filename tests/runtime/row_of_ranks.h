// A program of eight tensors and stacks over a row of ranks, for tests of what fills and saves
// it.
#ifndef ROW_OF_RANKS_H
#define ROW_OF_RANKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "checkpoint/checkpoint.h"
#include "host_target.h"
#include "base/program.h"
#include "checkpoint/save_folder.h"
#include "formats/safetensors.h"
#include "temporary.h"
#include "tensors/tensors.h"

enum { WEIGHT, BIAS, NORMED, LAYERS, MOMENT, MOMENTS, IDS, SEEN, RESULT, TENSORS };
enum { MEMORY = 8192, MOST_RANKS = 8, STACK = 12 };

static struct tensor tensors[TENSORS] = {
    [WEIGHT] = {{"weight", NULL},
                {"w.weight", NULL},
                1,
                PARAMETER,
                F32,
                0,
                0,
                2,
                {5, 3},
                {0},
                {UNIFORM, {-0.5, 0.5}}},
    [BIAS] = {{"bias", NULL},
              {NULL, NULL},
              1,
              PARAMETER,
              F32,
              256,
              0,
              1,
              {3},
              {0},
              {CONSTANT, {0.25, 0}}},
    [NORMED] = {{"normed", NULL},
                {NULL, NULL},
                1,
                PARAMETER,
                BF16,
                512,
                0,
                2,
                {2, 7},
                {0},
                {NORMAL, {1, 2}}},
    [LAYERS] = {{"layers.", ".w"},
                {"model.h.", ".weight"},
                STACK,
                PARAMETER,
                F32,
                2304,
                48,
                2,
                {4, 3},
                {0},
                {NORMAL, {0, 1}}},
    [MOMENT] = {{"optim.exp_avg.weight", NULL},
                {NULL, NULL},
                1,
                STATE,
                F32,
                768,
                0,
                2,
                {5, 3},
                {0},
                {CONSTANT, {0, 0}}},
    [MOMENTS] = {{"optim.exp_avg.layers.", ".w"},
                 {NULL, NULL},
                 STACK,
                 STATE,
                 F32,
                 4096,
                 64,
                 2,
                 {4, 3},
                 {0},
                 {CONSTANT, {0, 0}}},
    [IDS] =
        {{"tokens", NULL}, {NULL, NULL}, 1, BATCH, I32, 1024, 0, 1, {11}, {0}, {UNIFORM, {0, 100}}},
    [SEEN] =
        {{"seen", NULL}, {NULL, NULL}, 1, BATCH, BOOL, 1152, 0, 1, {40}, {0}, {UNIFORM, {0, 2}}},
    [RESULT] =
        {{"result", NULL}, {NULL, NULL}, 1, OUTPUT, F32, 1280, 0, 1, {4}, {0}, {CONSTANT, {0, 0}}},
};
// Which dimension is cut over the ranks; -1: each has the whole.
static const int cut[TENSORS] = {0, -1, 1, 1, 0, 1, 0, 0, -1};

static struct own_part own[TENSORS];
static char memories[MOST_RANKS][MEMORY];
void *rank_memory;

static const struct program this_program = {.plan = "plan.lua",
                                            .hash = "0123456789abcdef",
                                            .world = 1,
                                            .seed = 45,
                                            .bytes = MEMORY,
                                            .loss = 2048,
                                            .tensors = tensors,
                                            .ntensors = TENSORS};
static const struct rank this_rank = {.parts = own};
const struct program *program = &this_program;
const struct rank *rank = &this_rank;

static void become(int id, int ranks)
{
  rank_memory = memories[id];
  for (int i = 0; i < TENSORS; i++) {
    struct tensor *t = &tensors[i];
    memcpy(t->here, t->of, sizeof t->here);
    memset(own[i].first, 0, sizeof own[i].first);
    own[i].saves = cut[i] >= 0 || id == 0;
    if (cut[i] < 0) continue;
    long size = t->of[cut[i]], part = (size + ranks - 1) / ranks, first = id * part;
    own[i].first[cut[i]] = first < size ? first : size;
    t->here[cut[i]] = first >= size ? 0 : first + part < size ? part : size - first;
  }
}

// A float of a rank's memory.
static inline float *float_at(int id, size_t offset)
{
  return (float *)(void *)(memories[id] + offset);
}

static char saved[128], index_path[128], beside[128];

#define TOKEN_HERE "here-1-0"
static struct folder folder = {.fd = -1};

static int make_paths(void **state)
{
  if (make_directory(state) != 0) return -1;
  snprintf(saved, sizeof saved, "%s/model.safetensors", directory);
  snprintf(index_path, sizeof index_path, "%s/model.safetensors.index.json", directory);
  snprintf(beside, sizeof beside, "%s/.model.safetensors.%s.tmp", directory, TOKEN_HERE);
  return 0;
}

// All ranks fill theirs and agree on the checksums.
static bool fill_checked(int ranks, const struct origins *from, int *step, struct failure *why)
{
  struct checks all = {0};
  struct progress at = {0};
  bool ok = true;
  memset(memories, 0, sizeof memories);
  for (int id = 0; ok && id < ranks; id++) {
    struct checks own = {0};
    struct origins checked = *from;
    checked.checks = &own;
    become(id, ranks);
    ok = tensors_fill(&checked, &at, why);
    for (size_t i = 0; ok && id > 0 && i < all.count; i++) own.shares[i] ^= all.shares[i];
    checks_free(&all);
    all = own;
  }
  for (size_t i = 0; ok && i < all.count; i++) ok = checks_hold(&all, i, why);
  checks_free(&all);
  *step = at.step;
  return ok;
}

static int fill_from(int ranks, const struct origins *from)
{
  int step = -1;
  struct failure why = {""};
  if (!fill_checked(ranks, from, &step, &why)) fail_msg("%s", why.text);
  return step;
}

// From a checkpoint, or from nothing.
static int fill(int ranks, const char *load)
{
  return fill_from(ranks, &(struct origins){.load = load});
}

// Each rank's own save, as if they were processes.
struct saves {
  struct save *of[MOST_RANKS];
  int ranks;
};

static struct saves begin_save(int ranks, const struct saving *what)
{
  struct saves saves = {.ranks = ranks};
  struct failure why = {""}, note;
  if (!folder_take(&folder, what->directory, TOKEN_HERE, &note, &why)) fail_msg("%s", why.text);
  for (int id = 0; id < ranks; id++) {
    become(id, ranks);
    saves.of[id] = save_plan(what, &why);
    if (!saves.of[id]) fail_msg("%s", why.text);
  }
  if (!save_create(saves.of[0], &why)) fail_msg("%s", why.text);
  for (int id = 0; id < ranks; id++) {
    become(id, ranks);
    if (!save_write(saves.of[id], &why)) fail_msg("rank %d: %s", id, why.text);
  }
  for (int id = 1; id < ranks; id++) {
    size_t count;
    const uint32_t *theirs = save_shares(saves.of[id], &count);
    uint32_t *first = save_shares(saves.of[0], &count);
    for (size_t i = 0; i < count; i++) first[i] ^= theirs[i];
  }
  return saves;
}

static void end_save(struct saves *saves)
{
  for (int id = 0; id < saves->ranks; id++) save_end(saves->of[id]);
  folder_release(&folder);
}

static void save_as(int ranks, const struct saving *what)
{
  struct failure why = {""};
  struct saves saves = begin_save(ranks, what);
  if (!save_commit(saves.of[0], &why)) fail_msg("%s", why.text);
  end_save(&saves);
}

static void save(int ranks, int step)
{
  save_as(ranks, &(struct saving){directory, CHECKPOINT, step, 0, TOKEN_HERE, &folder, 0});
}

static inline size_t read_file(const char *path, char *to, size_t most)
{
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  size_t bytes = fread(to, 1, most, f);
  assert_int_equal(fclose(f), 0);
  return bytes;
}

#endif
