// SPDX-License-Identifier: MIT
#include "tensors/adapters.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/json_memory.h"
#include "base/names.h"
#include "base/program.h"
#include "base/target.h"

static const char WEIGHT[] = ".weight";
static const char *const PARTS[][2] = {{".lora_A.weight", ".lora_B.weight"},
                                       {".lora_embedding_A", ".lora_embedding_B"}};
enum { KINDS = sizeof PARTS / sizeof *PARTS };

bool adapters_have(const char *name)
{
  bool is = false;
  for (int k = 0; k < KINDS; k++)
    is |= ends_with(name, PARTS[k][0]) || ends_with(name, PARTS[k][1]);
  return program->adapter && is;
}

// ---- files -------------------------------------------------------------------------------------

// The ranks are in the shapes of the tensors; only this file has the scale.
static bool same_scale(const char *path, struct failure *why)
{
  json_error_t error;
  json_t *file = json_load_file(path, 0, &error), *own = json_loads(program->adapter, 0, &error);
  const double alpha = json_number_value(json_object_get(file, "lora_alpha"));
  const bool is_rs = json_is_true(json_object_get(file, "use_rslora"));
  const double own_alpha = json_number_value(json_object_get(own, "lora_alpha"));
  const bool own_is_rs = json_is_true(json_object_get(own, "use_rslora"));
  const bool read = file && own && !json_memory_ended();
  json_decref(file);
  json_decref(own);
  if (!read) return failed(why, "%s: cannot be read as JSON", path);
  if (alpha == own_alpha && is_rs == own_is_rs) return true;
  return failed(why, "%s: its lora_alpha is %g%s, and the program's is %g%s", path, alpha,
                is_rs ? " with use_rslora" : "", own_alpha, own_is_rs ? " with use_rslora" : "");
}

bool adapters_find_file(const char *path, char *to, size_t room, struct failure *why)
{
  char config[PATH_MAX];
  struct stat about;
  if (!program->adapter)
    return failed(why, "%s: this program has no adapters: lora in its plan", path);
  if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode)) {
    snprintf(to, room, "%s", path);
    return true;
  }
  snprintf(to, room, "%s/%s", path, ADAPTER_FILE);
  snprintf(config, sizeof config, "%s/%s", path, ADAPTER_CONFIG);
  return stat(config, &about) != 0 || same_scale(config, why);
}

static bool write_text(const char *path, const char *text, struct failure *why)
{
  FILE *file = fopen(path, "w");
  if (!file) return failed(why, "%s: cannot create: %s", path, strerror(errno));
  bool ok = fputs(text, file) >= 0 && fputc('\n', file) != EOF && fflush(file) == 0 &&
            fsync(fileno(file)) == 0;
  ok = fclose(file) == 0 && ok;
  return ok || failed(why, "%s: cannot write: %s", path, strerror(errno));
}

bool adapters_describe(const char *folder, const char *base, const char *token, struct failure *why)
{
  char path[PATH_MAX], new_path[PATH_MAX];
  json_error_t error;
  json_t *config = json_loads(program->adapter, 0, &error);
  if (base) json_object_set_new(config, "base_model_name_or_path", json_string(base));
  char *text = json_dumps(config, JSON_INDENT(2) | JSON_SORT_KEYS);
  json_decref(config);
  if (!text || json_memory_ended()) {
    free(text);
    return failed(why, "%s: out of memory for its description", folder);
  }
  const int length = snprintf(path, sizeof path, "%s/%s", folder, ADAPTER_CONFIG);
  const int longer =
      snprintf(new_path, sizeof new_path, "%s/.%s.%s.tmp", folder, ADAPTER_CONFIG, token);
  bool ok =
      (length < PATH_MAX && longer < PATH_MAX) || failed(why, "%s: the path is too long", folder);
  ok = ok && write_text(new_path, text, why);
  free(text);
  if (ok && rename(new_path, path) != 0)
    ok = failed(why, "%s: cannot rename to %s: %s", new_path, path, strerror(errno));
  if (!ok) unlink(new_path);
  return ok;
}

// ---- merging -----------------------------------------------------------------------------------

// An adapted weight, [out, in]; A is [rank, in], B [out, rank]. If it is transposed, it is [in,
// out].
struct adapted {
  const struct member *weight, *part_a, *part_b;
  long rank, columns; // of the weight
  const float *a, *b; // whole
  bool is_transposed;
};

static OF_MODEL struct adapted *adapted;
static OF_MODEL size_t nadapted, nnumbers;
static OF_MODEL float *numbers; // of all A and B

static const struct member *part_of(const struct members *members, const struct member *weight,
                                    const char *part)
{
  char name[1024];
  const size_t stem = strlen(weight->name) - strlen(WEIGHT), length = strlen(part);
  if (stem + length >= sizeof name) return NULL;
  memcpy(name, weight->name, stem);
  memcpy(name + stem, part, length + 1);
  return table_find(members, name);
}

static size_t whole_elements(const struct member *m)
{
  struct numbers_slice own;
  table_numbers(m->row, OWN_NAME, &own);
  return (size_t)own.of[0] * (size_t)own.of[1];
}

// Whether the name is a line of `transposed` of the program.
static bool is_transposed(const char *name)
{
  const size_t n = strlen(name);
  for (const char *line = program->transposed; line && *line; line += strcspn(line, "\n") + 1)
    if (strncmp(line, name, n) == 0 && line[n] == '\n') return true;
  return false;
}

static void find_adapted(const struct members *members)
{
  for (size_t i = 0; i < members->count * KINDS; i++) {
    const struct member *m = &members->all[i / KINDS];
    const char *const *part = PARTS[i % KINDS];
    if (!ends_with(m->name, WEIGHT) || adapters_have(m->name) || m->of != m) continue;
    struct adapted one = {.weight = m,
                          .part_a = part_of(members, m, part[0]),
                          .part_b = part_of(members, m, part[1]),
                          .is_transposed = is_transposed(m->name)};
    if (!one.part_a || !one.part_b) continue;
    one.rank = program->tensors[one.part_a->row].of[0];
    struct numbers_slice own;
    table_numbers(m->row, OWN_NAME, &own);
    one.columns = own.of[1];
    adapted[nadapted++] = one;
    nnumbers += whole_elements(one.part_a) + whole_elements(one.part_b);
  }
}

// Copies the elements that this rank would save: every element is one rank's.
static const float *copy_own(const struct member *m, float *to)
{
  if (m->next) copy_own(m->next, to);
  struct slice slice = table_slice(m->row);
  const size_t elements = rank->parts[m->row].saves ? slice_elements(&slice) : 0;
  for (size_t from = 0; from < elements;) {
    struct run run = slice_run(&slice, from, elements - from);
    target_get(to + run.first, table_memory(m) + from * sizeof *to, run.count * sizeof *to);
    from += run.count;
  }
  return to;
}

bool adapters_begin(const struct members *members, struct failure *why)
{
  if (!program->adapter) return true;
  nadapted = nnumbers = 0;
  adapted = calloc(members->count + 1, sizeof *adapted);
  if (!adapted) return failed(why, "out of memory for adapters");
  find_adapted(members);
  numbers = calloc(nnumbers + 1, sizeof *numbers);
  if (!numbers) return failed(why, "out of memory for adapters");
  float *to = numbers;
  for (size_t i = 0; i < nadapted; i++) {
    adapted[i].a = copy_own(adapted[i].part_a, to);
    to += whole_elements(adapted[i].part_a);
    adapted[i].b = copy_own(adapted[i].part_b, to);
    to += whole_elements(adapted[i].part_b);
  }
  return true;
}

uint32_t *adapters_numbers(size_t *count)
{
  *count = nnumbers;
  return (uint32_t *)numbers;
}

// Elements first .. first + count - 1 of the whole weight.
static void add_run(const struct adapted *one, size_t first, size_t count, float *to)
{
  const size_t low = (size_t)one->rank, columns = (size_t)one->columns;
  const size_t rows = whole_elements(one->weight) / columns, last = (first + count - 1) / columns;
  const float scale = (float)program->adapter_scale; // OpenMP's threads see no model
#ifdef _OPENMP
#pragma omp parallel for
#endif
  for (size_t row = first / columns; row <= last; row++) {
    const size_t begin = row * columns < first ? first : row * columns;
    const size_t end = (row + 1) * columns > first + count ? first + count : (row + 1) * columns;
    for (size_t k = 0; k < low; k++) {
      const float of_row = one->is_transposed ? one->a[k * rows + row] : one->b[row * low + k];
      const float factor = scale * of_row;
      const float *of_columns = one->is_transposed ? one->b + k : one->a + k * columns;
      const size_t stride = one->is_transposed ? low : 1;
      for (size_t i = begin; i < end; i++)
        to[i - first] += factor * of_columns[(i - row * columns) * stride];
    }
  }
}

void adapters_add(const struct member *weight, size_t from, size_t count, void *elements)
{
  size_t k = 0;
  while (k < nadapted && adapted[k].weight != weight->of) k++;
  if (k == nadapted) return;
  struct numbers_slice own;
  table_numbers(weight->row, OWN_NAME, &own);
  for (size_t done = 0; done < count;) {
    struct run run = slice_run(&own.slice, from + done, count - done);
    add_run(&adapted[k], run.first, run.count, (float *)elements + done);
    done += run.count;
  }
}

void adapters_end(void)
{
  free(adapted);
  free(numbers);
  adapted = NULL;
  numbers = NULL;
  nadapted = nnumbers = 0;
}
