/* Three libraries in one program, for library.sh: model (plans/toy.lua), ocean (ocean.lua)
   and pond (tests/equal/outputs.lua, which only goes forward). On two ranks:

     driver data      writes inputs as files for the programs
     driver run       writes losses and outputs as the programs do, from models that take turns,
   from whole tensors and in place, from threads, and after files; ends with 1 if a call has not the
                      status that it should have

   MPI_Allreduce is this file's: it fails when this file asks for it. */
#include "model.h"
#include "ocean.h"
#include "pond.h"

#include <pthread.h>
#include <sanitizer/lsan_interface.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 5, ROWS = 20, IDS = 12, OCEAN_STEPS = 5 };
static float input[STEPS][ROWS][10], target[STEPS][ROWS][5];
static int32_t ids[OCEAN_STEPS * OCEAN_BATCHES][IDS], classes[OCEAN_STEPS * OCEAN_BATCHES][IDS];
static int rank, failures;

static void make_data(void)
{
  unsigned x = 12345;
  for (size_t i = 0; i < sizeof input / sizeof(float); i++)
    ((float *)input)[i] = (float)((x = x * 1103515245u + 12345u) >> 16 & 0xff) / 64 - 2;
  for (size_t i = 0; i < sizeof target / sizeof(float); i++)
    ((float *)target)[i] = (float)((x = x * 1103515245u + 12345u) >> 16 & 0xff) / 64 - 2;
  for (size_t i = 0; i < sizeof ids / sizeof(int32_t); i++) {
    ((int32_t *)ids)[i] = (int32_t)((x = x * 1103515245u + 12345u) >> 16) % 5;
    ((int32_t *)classes)[i] = (int32_t)((x = x * 1103515245u + 12345u) >> 16) % 5;
  }
}

static void write_npy(const char *path, const char *type, const char *shape, const void *data,
                      size_t bytes)
{
  char head[128];
  FILE *file = fopen(path, "wb");
  memset(head, ' ', sizeof head);
  memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
  int n = snprintf(head + 10, 117, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type,
                   shape);
  head[10 + n] = ' ';
  head[127] = '\n';
  if (!file || fwrite(head, 1, 128, file) != 128 || fwrite(data, 1, bytes, file) != bytes ||
      fclose(file))
    exit(3);
}

static void write_data(void)
{
  write_npy("model/input.npy", "<f4", "100, 10", input, sizeof input);
  write_npy("model/target.npy", "<f4", "100, 5", target, sizeof target);
  write_npy("ocean/input.npy", "<i4", "40, 3", ids, sizeof ids);
  write_npy("ocean/target.npy", "<i4", "40, 3", classes, sizeof classes);
}

/* A status, and a part of the text. */
static void want(int line, int status, int expected, const char *text, const char *part)
{
  if (status == expected && (!part || strstr(text, part))) return;
  failures++;
  fprintf(stderr, "driver.c:%d: rank %d: status %d, not %d: %s\n", line, rank, status, expected,
          text);
}
#define IS(m, call, status, part)                                                                  \
  do {                                                                                             \
    const int is_ = (call); /* before its text */                                                  \
    want(__LINE__, is_, status, m##_error(m), part);                                               \
  } while (0)
#define OK(m, call) IS(m, call, 0, NULL)

static FILE *open_losses(const char *path)
{
  return fopen(rank == 0 ? path : "/dev/null", "w");
}

/* ---------------------------------------------------------------------------------- taking turns
 */

static void put_in_place(struct model *model, int step)
{
  struct model_tensor at;
  OK(model, model_tensor(model, "input", &at));
  memcpy(at.data, input[step], (size_t)at.bytes);
  OK(model, model_tensor(model, "target", &at));
  memcpy(at.data, target[step], (size_t)at.bytes);
}

/* Two models of one library and one of another; one takes whole tensors, the other its parts in
 * place. */
static void take_turns(void)
{
  struct model *model, *whole_model;
  struct ocean *ocean;
  const struct model_options options = {.threads = 1};
  FILE *in_place = open_losses("model.place"), *whole = open_losses("model.whole");
  FILE *of_ocean = open_losses("ocean.whole");
  OK(model, model_open(MPI_COMM_WORLD, &options, &model));
  if (model_open(MPI_COMM_WORLD, NULL, &whole_model))
    want(__LINE__, 1, 0, model_error(whole_model), NULL);
  OK(ocean, ocean_open(MPI_COMM_WORLD, NULL, &ocean));
  for (int i = 0; i < STEPS; i++) {
    float loss, same;
    const void *batch[] = {input[i], target[i]}, *batches[OCEAN_BATCHES * 2];
    put_in_place(model, i);
    OK(model, model_step(model, NULL, &loss));
    fprintf(in_place, "%.9g\n", (double)loss);
    if (model_step(whole_model, batch, &same)) want(__LINE__, 1, 0, model_error(whole_model), NULL);
    fprintf(whole, "%.9g\n", (double)same);
    for (int b = 0; b < OCEAN_BATCHES; b++) {
      batches[2 * b] = ids[i * OCEAN_BATCHES + b];
      batches[2 * b + 1] = classes[i * OCEAN_BATCHES + b];
    }
    OK(ocean, ocean_step(ocean, batches, &loss));
    fprintf(of_ocean, "%.9g\n", (double)loss);
    if (i == 2) OK(ocean, ocean_save(ocean, "ocean.saved"));
  }
  want(__LINE__, model_steps(model), STEPS, "", NULL);
  OK(model, model_save(model, "model.saved"));
  OK(model, model_export(model, "model.exported"));
  fclose(in_place);
  fclose(whole);
  fclose(of_ocean);

  /* A checkpoint goes on; a loss of a forward is that of the step that follows it. */
  float loss, first[2];
  const void *batches[4] = {ids[6], classes[6], ids[7], classes[7]};
  void *out[] = {&first[0]};
  OK(ocean, ocean_load(ocean, "ocean.saved"));
  want(__LINE__, ocean_steps(ocean), 3, "", NULL);
  of_ocean = open_losses("ocean.resumed");
  OK(ocean, ocean_step(ocean, batches, &loss));
  fprintf(of_ocean, "%.9g\n", (double)loss);
  fclose(of_ocean);
  const void *inputs[] = {input[0], target[0]};
  OK(model, model_forward(model, inputs, out));
  out[0] = &first[1];
  OK(model, model_forward(model, NULL, out));
  OK(model, model_step(model, NULL, &loss));
  if (first[0] != loss || first[1] != loss)
    want(__LINE__, 1, 0, "a forward has another loss than a step", NULL);

  /* What is refused leaves the model as it was. */
  ids[0][7] = 5;
  IS(ocean, ocean_step(ocean, (const void *const[]){ids[0], classes[0], ids[0], classes[0]}, &loss),
     OCEAN_ERROR, "the caller's data: input[2, 1] (sample 2) is 5, but");
  IS(ocean, ocean_step(ocean, NULL, &loss), OCEAN_ERROR, "a step takes 2 batches");
  IS(ocean, ocean_step(ocean, (const void *const[]){ids[0], classes[0], ids[1], NULL}, &loss),
     OCEAN_ERROR, "batch 1: the input target is NULL");
  IS(ocean, ocean_forward(ocean, (const void *const[]){ids[0], classes[0]}, NULL), OCEAN_ERROR,
     "(sample 2) is 5");
  IS(ocean, ocean_load(ocean, "nowhere"), OCEAN_ERROR, "rank 0: nowhere");
  struct ocean_tensor t;
  IS(ocean, ocean_tensor(ocean, "words.wait", &t), OCEAN_ERROR, "no tensor words.wait");
  OK(ocean, ocean_tensor(ocean, "words.weight", &t));
  want(__LINE__, t.part[0] == (rank ? 2 : 3) && t.first[0] == 3 * rank && t.shape[0] == 5, 1,
       "part", NULL);
  int n = 0, inputs_seen = 0;
  while (ocean_tensor_at(ocean, n, &t) == OCEAN_OK) inputs_seen += t.role == OCEAN_INPUT, n++;
  want(__LINE__, n, 2 + 1 + 3 * 3, "tensors", NULL);
  want(__LINE__, inputs_seen, OCEAN_INPUTS, "inputs", NULL);
  model_close(model);
  model_close(whole_model);
  ocean_close(ocean);
}

/* --------------------------------------------------------------------------------------- forward
 */

static void go_forward(void)
{
  struct pond *pond;
  struct pond_tensor t;
  float *out[POND_OUTPUTS];
  size_t bytes[POND_OUTPUTS];
  OK(pond, pond_open(MPI_COMM_WORLD, NULL, &pond));
  for (int i = 0; i < POND_OUTPUTS; i++) {
    OK(pond, pond_tensor_at(pond, POND_INPUTS + i, &t));
    bytes[i] = sizeof(float);
    for (int d = 0; d < t.ndim; d++) bytes[i] *= (size_t)t.shape[d];
    out[i] = malloc(bytes[i]);
  }
  OK(pond, pond_forward(pond, NULL, (void *const *)out));
  for (int i = 0; i < POND_OUTPUTS; i++) {
    char path[64];
    OK(pond, pond_tensor_at(pond, POND_INPUTS + i, &t));
    snprintf(path, sizeof path, "pond.%s.%d", t.name, rank);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(out[i], 1, bytes[i], file) != bytes[i] || fclose(file)) exit(3);
    free(out[i]);
  }
  IS(pond, pond_step(pond, NULL, NULL), POND_ERROR, "only goes forward");
  IS(pond, pond_save(pond, "pond.saved"), POND_ERROR, "only goes forward");
  OK(pond, pond_export(pond, "pond.exported"));
  OK(pond, pond_load(pond, "pond.exported"));
  pond_close(pond);
}

/* --------------------------------------------------------------------------------------- threads
 */

struct trained {
  MPI_Comm comm;
  float loss[STEPS];
};

static void *train_model(void *with)
{
  struct trained *t = with;
  struct model *model;
  OK(model, model_open(t->comm, NULL, &model));
  for (int i = 0; i < STEPS; i++)
    OK(model, model_step(model, (const void *const[]){input[i], target[i]}, &t->loss[i]));
  model_close(model);
  return NULL;
}

static void run_threads(void)
{
  enum { THREADS = 3 };
  pthread_t thread[THREADS];
  struct trained trained[THREADS];
  for (int i = 0; i < THREADS; i++) MPI_Comm_dup(MPI_COMM_WORLD, &trained[i].comm);
  for (int i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, train_model, &trained[i]);
  FILE *file = open_losses("model.threads");
  for (int i = 0; i < THREADS; i++) {
    pthread_join(thread[i], NULL);
    MPI_Comm_free(&trained[i].comm);
    for (int k = 0; k < STEPS; k++) fprintf(file, "%.9g\n", (double)trained[i].loss[k]);
  }
  fclose(file);
}

/* -------------------------------------------------------------------------------------- failures
 */

static int fails_at = -1;

int MPI_Allreduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
  if (fails_at < 0 || fails_at-- > 0) return PMPI_Allreduce(from, to, n, type, op, comm);
  MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
  return MPI_ERR_OTHER;
}

static char late_text[1024];
static void is_late(void *context, const char *text)
{
  snprintf(context, sizeof late_text, "%s", text);
}

static void fail(void)
{
  struct model *model;
  struct pond *pond;
  float loss;
  MPI_Comm one;
  MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &one);
  IS(model, model_open(one, NULL, &model), MODEL_ERROR,
     "a model of 2 ranks, but the communicator has 1");
  IS(model, model_step(model, NULL, &loss), MODEL_BROKEN, "a model of 2 ranks");
  model_close(model);
  MPI_Comm_free(&one);
  IS(model, model_open(MPI_COMM_NULL, NULL, &model), MODEL_ERROR, "MPI_COMM_NULL");
  model_close(model);
  const struct model_options wrong = {.weights = "nowhere.safetensors"};
  IS(model, model_open(MPI_COMM_WORLD, &wrong, &model), MODEL_ERROR, "nowhere.safetensors");
  model_close(model);
  model_close(NULL);
  want(__LINE__, model_step(NULL, NULL, NULL), MODEL_BROKEN, model_error(NULL), "out of memory");

  /* A collective fails, first in model_open and then in a step: other models go on. */
  for (int at = 0;; at++) {
    fails_at = at;
    if (model_open(MPI_COMM_WORLD, NULL, &model) == MODEL_OK) break;
    IS(model, model_step(model, NULL, &loss), MODEL_BROKEN, "MPI_Allreduce");
    model_close(model);
  }
  fails_at = 0;
  IS(model, model_step(model, NULL, &loss), MODEL_BROKEN,
     "MPI_Allreduce(MPI_IN_PLACE, out_proj, 100");
  IS(model, model_step(model, NULL, &loss), MODEL_BROKEN, "failed at step.c");
  IS(model, model_save(model, "broken"), MODEL_BROKEN, "failed at step.c");
  OK(pond, pond_open(MPI_COMM_WORLD, NULL, &pond));
  OK(pond, pond_forward(pond, NULL, NULL));
  pond_close(pond);
  model_close(model);

  /* The other rank comes late. */
  const struct model_options options = {.deadline = 1, .late = is_late, .context = late_text};
  OK(model, model_open(MPI_COMM_WORLD, &options, &model));
  if (rank == 1) sleep(3);
  OK(model, model_step(model, NULL, &loss));
  want(__LINE__, rank == 1 || strstr(late_text, "in MPI_Allreduce (step.c:"), 1, late_text, NULL);
  want(__LINE__, rank == 1 || strstr(late_text, "plans/toy.lua:25 asks for"), 1, late_text, NULL);
  model_close(model);
}

/* Open MPI's own. */
const char *__lsan_default_suppressions(void)
{
  return "leak:libmpi\nleak:libopen-\nleak:libpmix\nleak:mca_\n";
}

int main(int argc, char **argv)
{
  int level;
  make_data();
  if (argc > 1 && !strcmp(argv[1], "data")) {
    write_data();
    return 0;
  }
  __lsan_disable();
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  __lsan_enable();
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  take_turns();
  go_forward();
  if (level == MPI_THREAD_MULTIPLE) run_threads();
  /* All models are closed: they have left no memory. Those that fail may leave some. */
  want(__LINE__, __lsan_do_recoverable_leak_check(), 0, "leaks", NULL);
  fail();
  MPI_Finalize();
  return failures > 0;
}
