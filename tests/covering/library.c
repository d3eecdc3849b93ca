/* library: a caller of any model of tests/covering/plan.lua that is a library. It takes some of the
   options of the program of the same plan, and tells and saves what that one does:

     library --metrics FILE --save FOLDER [--data FILE] [--load FOLDER] [--steps N] [--export
   FOLDER]

   The batches are those of the file, in order, without the last, incomplete one; without a file
   they are the model's own. The metrics also have what a forward gives before each step:
   forward_loss ... Without
   --load a second model loads what the first has saved, saves it in FOLDER.second, and takes the
   same further step. */
#include "model.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, EACH = MODEL_INPUTS * MODEL_BATCHES };

static int rank;
static struct {
  const char *metrics, *save, *data, *load, *steps, *to;
} options;

static _Noreturn void give_up(const char *what, const char *why)
{
  fprintf(stderr, "caller, rank %d: %s: %s\n", rank, what, why);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check(int status, const struct model *model, const char *call)
{
  if (status != MODEL_OK) give_up(call, model_error(model));
}
#define OK(model, call)                                                                            \
  do {                                                                                             \
    const int is_ = (call); /* before its text */                                                  \
    check(is_, model, #call);                                                                      \
  } while (0)

static void *room_for(size_t bytes)
{
  void *room = calloc(bytes + 1, 1);
  if (!room) give_up("calloc", "out of memory");
  return room;
}

/* ---- tensors ----------------------------------------------------------------------------------
 */

static size_t size_of(const struct model_tensor *t)
{
  static const size_t sizes[] = {
      [MODEL_F32] = 4, [MODEL_BF16] = 2, [MODEL_I32] = 4, [MODEL_I64] = 8, [MODEL_BOOL] = 1};
  return sizes[t->type];
}

static size_t whole_bytes(const struct model_tensor *t)
{
  size_t bytes = size_of(t);
  for (int d = 0; d < t->ndim; d++) bytes *= (size_t)t->shape[d];
  return bytes;
}

/* Copies this rank's part to its place in the whole, or from there, element by element. */
static void copy_part(const struct model_tensor *t, char *whole, bool from_whole)
{
  const size_t size = size_of(t), all = (size_t)t->bytes / size;
  char *part = t->data;
  for (size_t i = 0; i < all; i++) {
    size_t at = 0, left = i, stride = 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
      at += ((size_t)t->first[d] + left % (size_t)t->part[d]) * stride;
      left /= (size_t)t->part[d];
      stride *= (size_t)t->shape[d];
    }
    if (from_whole)
      memcpy(part + i * size, whole + at * size, size);
    else
      memcpy(whole + at * size, part + i * size, size);
  }
}

/* The whole tensor, of the parts of all ranks. */
static char *gather(const struct model_tensor *t)
{
  const size_t bytes = whole_bytes(t);
  char *whole = room_for(bytes);
  if (t->saves) copy_part(t, whole, false);
  MPI_Allreduce(MPI_IN_PLACE, whole, (int)bytes, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
  return whole;
}

/* ---- batches ----------------------------------------------------------------------------------
 */

static struct model_tensor inputs[MODEL_INPUTS];
static char *data[MODEL_INPUTS]; /* of the file, or one batch */
static long batches;             /* in an epoch */

/* Where the tensor of that name is in the file, whose header is as covering/samples.c writes it. */
static char *find(const struct model_tensor *t, char *file, long *samples)
{
  uint64_t length;
  size_t begin, end;
  char *header = file + sizeof length, key[64];
  memcpy(&length, file, sizeof length);
  snprintf(key, sizeof key, "\"%s\":", t->name);
  const char *at = strstr(header, key);
  const char *shape = at ? strstr(at, "\"shape\":[") : NULL;
  const char *offsets = shape ? strstr(shape, "\"data_offsets\":[") : NULL;
  if (!offsets || sscanf(shape, "\"shape\":[%ld", samples) != 1 ||
      sscanf(offsets, "\"data_offsets\":[%zu,%zu]", &begin, &end) != 2)
    give_up(options.data, "it has no such input");
  if ((end - begin) / (size_t)*samples * (size_t)t->shape[0] != whole_bytes(t))
    give_up(t->name, "other samples than the file has");
  return header + length + begin;
}

static char *read_file(const char *path)
{
  FILE *f = fopen(path, "rb");
  if (!f || fseek(f, 0, SEEK_END)) give_up(path, "cannot be read");
  const long bytes = ftell(f);
  char *file = room_for((size_t)bytes);
  rewind(f);
  if (fread(file, 1, (size_t)bytes, f) != (size_t)bytes) give_up(path, "cannot be read");
  fclose(f);
  return file;
}

static void open_batches(struct model *model)
{
  char *file = options.data ? read_file(options.data) : NULL;
  long samples = 0;
  for (int i = 0; i < MODEL_INPUTS; i++) {
    OK(model, model_tensor_at(model, i, &inputs[i]));
    data[i] = file ? find(&inputs[i], file, &samples) : gather(&inputs[i]);
  }
  batches = file ? samples / inputs[0].shape[0] : 1;
}

/* The inputs of a step, counted from 0. */
static void batch_of(int step, const void *whole[EACH])
{
  for (long b = 0; b < MODEL_BATCHES; b++)
    for (int i = 0; i < MODEL_INPUTS; i++)
      whole[b * MODEL_INPUTS + i] =
          data[i] + (size_t)((step * MODEL_BATCHES + b) % batches) * whole_bytes(&inputs[i]);
}

/* Every other batch goes to its place by this program's own hand. */
static const void *const *place(int step, const void *whole[EACH])
{
  batch_of(step, whole);
  if (MODEL_BATCHES > 1 || step % 2 != 0) return whole;
  for (int i = 0; i < MODEL_INPUTS; i++) copy_part(&inputs[i], (char *)(uintptr_t)whole[i], true);
  return NULL;
}

/* ---- steps ------------------------------------------------------------------------------------
 */

static void same_on_all(const char *what, float x)
{
  float least, most;
  MPI_Allreduce(&x, &least, 1, MPI_FLOAT, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(&x, &most, 1, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
  if (!(least == most)) give_up(what, "ranks have another one");
}

static float value_of(const struct model_tensor *t)
{
  char *whole = gather(t);
  float x;
  memcpy(&x, whole, sizeof x);
  free(whole);
  return x;
}

/* The loss and the metrics of a forward of each batch: a loss that is whole after all of them alone
   is refused. Metrics are told where a step has one batch. */
static void forward(struct model *model, const void *const in[], FILE *to)
{
  float of[MODEL_OUTPUTS], loss = 0;
  void *out[MODEL_OUTPUTS] = {&of[0]};
  for (int i = 1; MODEL_BATCHES == 1 && i < MODEL_OUTPUTS; i++) out[i] = &of[i];
  for (int b = 0; b < MODEL_BATCHES; b++) {
    const int status = model_forward(model, in ? in + b * MODEL_INPUTS : NULL, out);
    if (status == MODEL_ERROR && strstr(model_error(model), "say validate = {} in the plan"))
      return;
    check(status, model, "model_forward");
    same_on_all("the loss of a forward", of[0]);
    loss += of[0] / MODEL_BATCHES;
  }
  fprintf(to, ", \"forward_loss\": %.9g", (double)loss);
  for (int i = 1; MODEL_BATCHES == 1 && i < MODEL_OUTPUTS; i++) {
    struct model_tensor t;
    OK(model, model_tensor_at(model, MODEL_INPUTS + i, &t));
    fprintf(to, ", \"forward_%s\": %.9g", t.name, (double)of[i]);
  }
}

static float step_of(struct model *model, const void *const batch[])
{
  float loss = -1;
  OK(model, model_step(model, batch, &loss));
  same_on_all("the loss of a step", loss);
  return loss;
}

static void train(struct model *model, int steps)
{
  const void *whole[EACH];
  FILE *to = fopen(rank == 0 && options.metrics ? options.metrics : "/dev/null", "w");
  if (!to) give_up(options.metrics, "cannot be written");
  for (int t; (t = model_steps(model)) < steps;) {
    struct model_tensor metric;
    const void *const *batch = place(t, whole);
    fprintf(to, "{\"step\": %d", t + 1);
    forward(model, batch, to);
    fprintf(to, ", \"loss\": %.9g", (double)step_of(model, batch));
    for (int i = 1; i < MODEL_OUTPUTS; i++) {
      OK(model, model_tensor_at(model, MODEL_INPUTS + i, &metric));
      fprintf(to, ", \"%s\": %.9g", metric.name, (double)value_of(&metric));
    }
    fprintf(to, "}\n");
  }
  fclose(to);
}

/* ---- a second model ---------------------------------------------------------------------------
 */

static void load_second(struct model *first)
{
  const void *whole[EACH];
  char folder[4096];
  struct model *second;
  OK(second, model_open(MPI_COMM_WORLD, NULL, &second));
  OK(second, model_load(second, options.save));
  if (model_steps(second) != model_steps(first)) give_up("model_load", "other steps");
  snprintf(folder, sizeof folder, "%s.second", options.save);
  OK(second, model_save(second, folder));
  batch_of(model_steps(first), whole);
  const float loss = step_of(first, whole), same = step_of(second, whole);
  if (!(loss == same)) give_up("a further step", "another loss of the model that was loaded");
  model_close(second);
}

static void read_options(int argc, char **argv)
{
  static const struct {
    const char *name, **to;
  } all[] = {{"--metrics", &options.metrics}, {"--save", &options.save},
             {"--data", &options.data},       {"--load", &options.load},
             {"--steps", &options.steps},     {"--export", &options.to}};
  for (int i = 1; i < argc; i += 2) {
    size_t k = 0;
    while (k < sizeof all / sizeof *all && strcmp(argv[i], all[k].name)) k++;
    if (k == sizeof all / sizeof *all || i + 1 == argc) give_up(argv[i], "no such option");
    *all[k].to = argv[i + 1];
  }
  if (!options.save) give_up("usage", "--save FOLDER");
}

int main(int argc, char **argv)
{
  struct model *model;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  read_options(argc, argv);
  OK(model, model_open(MPI_COMM_WORLD, NULL, &model));
  open_batches(model);
  if (options.load) OK(model, model_load(model, options.load));
  train(model, options.steps ? atoi(options.steps) : STEPS);
  OK(model, model_save(model, options.save));
  if (options.to) OK(model, model_export(model, options.to));
  if (!options.load) load_second(model);
  model_close(model);
  MPI_Finalize();
  return 0;
}
