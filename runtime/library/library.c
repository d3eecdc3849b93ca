// SPDX-License-Identifier: MIT
// The functions of a library's header: opening, steps, files, errors.
#include "library/library.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef __SSE__
#include <immintrin.h>
#endif
#include "base/open_input.h"
#include "base/target.h"
#include "checkpoint/across_ranks.h"
#include "data/batches.h"
#include "data/tokens.h"
#include "tensors/integer_inputs.h"
#include "tensors/row_bounds.h"

static OF_MODEL struct library *entered;

// ---- errors
// --------------------------------------------------------------------------------------

void fail_call(const char *file, int line, const char *call, const char *why)
{
  struct library *m = entered;
  char text[MPI_MAX_ERROR_STRING] = "";
  const char *base = strrchr(file, '/');
  if (!m) abort(); // cannot be: only a thread in a call makes calls that fail
  if (!why) why = target_error(text);
  failed(&m->error, "rank %d: %s failed at %s:%d%s%s", rank->id, call, base ? base + 1 : file, line,
         why ? ": " : "", why ? why : "");
  m->broken = m->lost = true;
  longjmp(m->failed, 1);
}

// The text of the first that failed becomes that of all ranks.
bool all_ranks_ok(bool ok, const struct failure *why)
{
  struct library *m = entered;
  const int first = target_first_failure(ok);
  if (first < 0) return true;
  struct failure text = {""};
  int error;
  if (first == rank->id) text = *why;
  WAITING("MPI_Bcast", error = MPI_Bcast(&text, sizeof text, MPI_BYTE, first, m->everyone));
  if (error != MPI_SUCCESS) fail_call(__FILE__, __LINE__, "MPI_Bcast", NULL);
  failed(&m->error, "rank %d: %.1000s", first, text.text);
  return false;
}

// ---- entry
// ---------------------------------------------------------------------------------------

// The state of its thread that a call changes.
struct saved_state {
  unsigned csr;
  int threads;
};

static void watch_from(struct library *m, const struct place *const *at)
{
  if (!m->watch.runs) return;
  pthread_mutex_lock(&m->watch.lock);
  m->watch.pending = at;
  m->watch.collectives = &collectives;
  pthread_mutex_unlock(&m->watch.lock);
}

static struct saved_state enter(struct library *m)
{
  struct saved_state before = {0};
#ifdef __SSE__
  before.csr = _mm_getcsr();
  _mm_setcsr(before.csr | 0x8040); // as a program: flush denormals to zero
#endif
#ifdef _OPENMP
  before.threads = omp_get_max_threads();
  if (m->options.threads > 0) omp_set_num_threads(m->options.threads);
#endif
  entered = m;
  rank = m->rank;
  program = rank->program;
  rank_memory = m->memory;
  learning_rate_factor = m->rate_factor;
  validations = m->validations;
  pending = NULL;
  if (m->ranks) target_use(m->ranks);
  watch_from(m, &pending);
  return before;
}

static void leave(struct library *m, const struct saved_state *before)
{
  watch_from(m, NULL);
  m->validations = validations;
  entered = NULL;
#ifdef _OPENMP
  omp_set_num_threads(before->threads);
#endif
#ifdef __SSE__
  _mm_setcsr(before->csr);
#endif
  (void)before;
}

// A failure in the depth of the work comes back here.
int library_call(struct library *m, bool (*work)(struct library *m, void *with), void *with)
{
  volatile bool done = false;
  if (!m) return LIBRARY_BROKEN;
  if (atomic_flag_test_and_set(&m->busy)) return LIBRARY_BUSY;
  if (!m->broken) {
    const struct saved_state before = enter(m);
    *m->error.text = 0;
    if (setjmp(m->failed) == 0) done = work(m, with);
    leave(m, &before);
  }
  const int status = m->broken ? LIBRARY_BROKEN : done ? LIBRARY_OK : LIBRARY_ERROR;
  atomic_flag_clear(&m->busy);
  return status;
}

// ---- opening and closing
// -------------------------------------------------------------------------

static void tell(const struct library *m, const struct failure *note)
{
  if (*note->text && m->options.verbose) fprintf(stderr, "note: %s\n", note->text);
}

// Collective.
static bool fill(struct library *m, struct origins *from)
{
  struct failure note = {""};
  int step;
  from->note = &note;
  set_deadline_factor(FILES);
  const bool ok = fill_together(from, from->weights || from->load, &step);
  set_deadline_factor(1);
  if (ok) m->step = step;
  tell(m, &note);
  return ok;
}

static bool has_room(struct library *m, struct failure *why)
{
  if (!table_members(&m->members, why)) return false;
  m->stage = malloc(STAGED_BYTES);
  m->ranks = target_ranks();
  return (m->stage && m->ranks) || failed(why, "out of memory");
}

static bool open_model(struct library *m, void *unused)
{
  struct failure why = {""};
  (void)unused;
  if (!target_join(m->everyone, &m->error)) return false;
  m->joined = true;
  if (!all_ranks_ok(target_same_program(&why), &why)) return false;
  target_groups();
  m->memory = rank_memory = target_allocate(program->bytes, &why);
  if (!all_ranks_ok(rank_memory && has_room(m, &why), &why)) return false;
  program->set_memory(rank_memory);
  target_begin();
  if (!all_ranks_ok(library_watch_start(m) || failed(&why, "no thread to watch the deadline"),
                    &why))
    return false;
  watch_from(m, &pending);
  const char *weights = m->options.weights ? m->options.weights : program->weights;
  return fill(m, &(struct origins){
                     .weights = weights, .adapter = m->options.adapter, .checks_later = true});
}

// Whether a model can be opened on these ranks; makes the library's own communicator of them.
static bool take_ranks(struct library *m, MPI_Comm comm)
{
  int begun = 0, ended = 0, size, id;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  if (!begun || ended) return failed(&m->error, "MPI is not initialized: call MPI_Init first");
  if (comm == MPI_COMM_NULL) return failed(&m->error, "the communicator is MPI_COMM_NULL");
  if (MPI_Comm_size(comm, &size) != MPI_SUCCESS || MPI_Comm_rank(comm, &id) != MPI_SUCCESS)
    return failed(&m->error, "the communicator is none");
  const int world = m->rank->program->world;
  if (size != world)
    return failed(&m->error, "this is a model of %d ranks, but the communicator has %d", world,
                  size);
  m->rank = library_ranks[id];
  return MPI_Comm_dup(comm, &m->everyone) == MPI_SUCCESS ||
         failed(&m->error, "MPI_Comm_dup failed");
}

int library_open(MPI_Comm comm, const struct library_options *options, struct library **model)
{
  struct library *m = calloc(1, sizeof *m);
  *model = m;
  if (!m) return LIBRARY_ERROR;
  atomic_flag_clear(&m->busy);
  m->everyone = MPI_COMM_NULL;
  m->folder.fd = -1;
  m->rank = library_ranks[0];
  m->rate_factor = 1;
  if (options) m->options = *options;
  m->options.weights = options ? options->weights : NULL;
  const int status = take_ranks(m, comm) ? library_call(m, open_model, NULL) : LIBRARY_ERROR;
  m->options.weights = m->options.adapter = NULL; // they are the caller's
  if (status != LIBRARY_OK) m->broken = true;
  return status;
}

int library_open_fortran(MPI_Fint comm, const struct library_options *options,
                         struct library **model)
{
  return library_open(MPI_Comm_f2c(comm), options, model);
}

// ---- the processes of mpirun -------------------------------------------------------------------

static bool started_world; // by this library

int library_open_world(const struct library_options *options, struct library **model)
{
  int started = 0;
  MPI_Initialized(&started);
  if (!started) {
    int level;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS) {
      *model = NULL;
      return LIBRARY_ERROR;
    }
    started_world = true;
  }
  return library_open(MPI_COMM_WORLD, options, model);
}

void library_leave_world(void)
{
  int ended = 0;
  if (started_world && MPI_Finalized(&ended) == MPI_SUCCESS && !ended) MPI_Finalize();
  started_world = false;
}

static bool scale_rate(struct library *m, void *with)
{
  const double factor = *(const double *)with;
  if (!(factor >= 0) || !(factor <= 1e30))
    return failed(&m->error, "a factor of the learning rate is 0 or more");
  m->rate_factor = factor;
  return true;
}

int library_scale_rate(struct library *m, double factor)
{
  return library_call(m, scale_rate, &factor);
}

void library_close(struct library *m)
{
  int ended = 0;
  if (!m) return;
  library_watch_stop(m);
  MPI_Finalized(&ended);
  const struct saved_state before = enter(m);
  if (setjmp(m->failed) == 0) {
    folder_release(&m->folder);
    if (m->joined && !m->lost && !ended) target_leave();
    if (m->memory) target_free(m->memory);
    if (m->everyone != MPI_COMM_NULL && !m->lost && !ended) MPI_Comm_free(&m->everyone);
  }
  leave(m, &before);
  table_free(&m->members);
  free(m->lengths);
  free(m->ranks);
  free(m->stage);
  free(m);
}

const char *library_error(const struct library *m)
{
  return m ? m->error.text : "out of memory";
}

int library_steps(const struct library *m)
{
  return m->step;
}

// ---- tensors
// -------------------------------------------------------------------------------------

static const int role_shown[] = {[PARAMETER] = LIBRARY_PARAMETER,
                                 [STATE] = LIBRARY_STATE,
                                 [BATCH] = LIBRARY_INPUT,
                                 [OUTPUT] = LIBRARY_OUTPUT};
static const int type_shown[] = {[F32] = LIBRARY_F32,
                                 [BF16] = LIBRARY_BF16,
                                 [I32] = LIBRARY_I32,
                                 [I64] = LIBRARY_I64,
                                 [BOOL] = LIBRARY_BOOL};

static bool describe(const struct member *member, struct library_tensor *to)
{
  const struct tensor *t = &program->tensors[member->row];
  const struct own_part *own = &rank->parts[member->row];
  *to = (struct library_tensor){.name = member->name,
                                .role = role_shown[t->role],
                                .type = type_shown[t->type],
                                .ndim = t->ndim,
                                .data = table_memory(member),
                                .bytes = (long)table_type(t->type).bytes,
                                .saves = own->saves};
  for (int d = 0; d < t->ndim; d++) {
    to->shape[d] = t->of[d];
    to->part[d] = t->here[d];
    to->first[d] = own->first[d];
    to->bytes *= t->here[d];
  }
  return true;
}

// The output of a model that trains.
static bool describe_loss(struct library_tensor *to)
{
  *to = (struct library_tensor){.name = "loss",
                                .role = LIBRARY_OUTPUT,
                                .type = LIBRARY_F32,
                                .data = (char *)rank_memory + program->loss,
                                .bytes = sizeof(float),
                                .saves = rank->id == 0};
  return true;
}

struct sought {
  const char *name;
  int number;
  struct library_tensor *to;
};

static bool find_named(struct library *m, void *with)
{
  const struct sought *s = with;
  const struct member *found = NULL;
  for (size_t i = 0; i < m->members.count && !found; i++) {
    const struct member *one = &m->members.all[i];
    const enum role role = program->tensors[one->row].role;
    if ((role == BATCH || role == OUTPUT) && strcmp(one->name, s->name) == 0) found = one;
  }
  if (!found && program->loss >= 0 && strcmp(s->name, "loss") == 0) return describe_loss(s->to);
  if (!found) found = table_find(&m->members, s->name);
  if (!found) return failed(&m->error, "the model has no tensor %s", s->name);
  if (strcmp(found->name, s->name) == 0 ? found->next : found->alias_next)
    return failed(&m->error, "%s is kept in parts: go through all tensors by their numbers",
                  s->name);
  return describe(found, s->to);
}

int library_tensor(struct library *m, const char *name, struct library_tensor *to)
{
  return library_call(m, find_named, &(struct sought){.name = name, .to = to});
}

static bool find_numbered(struct library *m, void *with)
{
  const struct sought *s = with;
  int left = s->number;
  const struct member *found;
  for (int i = 0; (found = library_input(m, i)); i++)
    if (left-- == 0) return describe(found, s->to);
  if (program->loss >= 0 && left-- == 0) return describe_loss(s->to);
  for (int i = 0; (found = library_output(m, i)); i++)
    if (left-- == 0) return describe(found, s->to);
  for (size_t i = 0; i < m->members.count && left >= 0; i++) {
    found = &m->members.all[i];
    const enum role role = program->tensors[found->row].role;
    if ((role == PARAMETER || role == STATE) && left-- == 0) return describe(found, s->to);
  }
  return failed(&m->error, "there is no tensor number %d", s->number);
}

int library_tensor_at(struct library *m, int number, struct library_tensor *to)
{
  return library_call(m, find_numbered, &(struct sought){.number = number, .to = to});
}

// ---- steps
// ---------------------------------------------------------------------------------------

struct run_of {
  const void *const *in;
  void *const *out;
  float *loss;
};

static bool are_given(struct library *m, const void *const *in, long batches)
{
  int n = 0;
  while (library_input(m, n)) n++;
  for (long i = 0; in && i < n * batches; i++)
    if (!in[i])
      return failed(&m->error, "batch %ld: the input %s is NULL", i / n,
                    library_input(m, (int)(i % n))->name);
  return true;
}

static void put_inputs(struct library *m, const void *const *in)
{
  const struct member *input;
  for (int i = 0; in && (input = library_input(m, i)); i++) library_put(m, input, in[i]);
}

// A step's forward asks for its batches. The model's step counts those that are done.
void next_batch(long i)
{
  struct library *m = entered;
  int n = 0;
  while (library_input(m, n)) n++;
  if (m->batch) put_inputs(m, m->batch + (i - m->step * program->batches) * n);
}

static float read_float(ptrdiff_t offset)
{
  float x;
  target_get(&x, (const char *)rank_memory + offset, sizeof x);
  return x;
}

// Whether the indices that were computed are valid; else forgets them.
static bool computed_well(int t)
{
  struct failure why = {""};
  if (program->noted < 0 || all_ranks_ok(numbers_computed(t, &why), &why)) return true;
  const unsigned long long none = 0;
  for (int i = 0; i < program->nindex_uses; i++)
    target_put((char *)rank_memory + program->noted + i * (long)sizeof none, &none, sizeof none);
  return false;
}

// Whether all rows by expert had room; else forgets that.
static bool rows_fitted(const char *when, const char *then)
{
  struct failure why = {""};
  if (!program->row_bounds || all_ranks_ok(rows_have_room(when, then, &why), &why)) return true;
  forget_rows();
  return false;
}

// The outputs: of a model that trains the loss, and behind it the plan's metrics.
static bool forward(struct library *m, void *with)
{
  const struct run_of *r = with;
  const struct member *output;
  const bool trains = program->loss >= 0;
  if (program->generation)
    return failed(&m->error, "the model generates: it has slots, and no forward of its own");
  if (trains && !program->validate)
    return failed(&m->error,
                  "the loss is whole only after the last batch of a step: say validate = {} in the "
                  "plan");
  for (int i = 0; trains && program->batches > 1 && r->out && library_output(m, i); i++)
    if (r->out[i + 1])
      return failed(&m->error,
                    "metrics of a step of %ld batches are made by a step, not by a "
                    "forward: give NULL for them",
                    program->batches);
  if (!are_given(m, r->in, 1) || !library_inputs_hold(m, r->in, 1)) return false;
  put_inputs(m, r->in);
  if (trains)
    target_run(program->validate);
  else
    target_step(1);
  target_wait();
  if (!computed_well(1) || !rows_fitted("in this forward", "")) return false;
  if (!r->out) return true;
  if (trains && r->out[0])
    *(float *)r->out[0] = read_float(program->loss) * (float)program->batches;
  for (int i = 0; (output = library_output(m, i)); i++)
    if (r->out[i + trains]) library_gather(m, output, r->out[i + trains]);
  return true;
}

int library_forward(struct library *m, const void *const in[], void *const out[])
{
  return library_call(m, forward, &(struct run_of){.in = in, .out = out});
}

static bool step(struct library *m, void *with)
{
  const struct run_of *r = with;
  if (program->loss < 0) return failed(&m->error, "the model only goes forward: it has no step");
  if (!r->in && program->batches > 1)
    return failed(&m->error,
                  "a step takes %ld batches, and memory holds the inputs of one: give all",
                  program->batches);
  if (!are_given(m, r->in, program->batches)) return false;
  if (!library_inputs_hold(m, r->in, program->batches)) return false;
  m->batch = r->in;
  target_step(m->step + 1);
  m->batch = NULL;
  if (step_has_ended_early()) return rows_fitted("in this step", "; the model is as it was before");
  m->step++;
  if (!computed_well(m->step) || !rows_fitted("in this step", "")) {
    m->broken = true; // the update has used them
    return false;
  }
  if (r->loss) *r->loss = read_float(program->loss);
  return true;
}

int library_step(struct library *m, const void *const batch[], float *loss)
{
  return library_call(m, step, &(struct run_of){.in = batch, .loss = loss});
}

// ---- files
// ---------------------------------------------------------------------------------------

static bool load(struct library *m, void *with)
{
  struct origins from = {.without_inputs = true};
  if (program->loss < 0)
    from.weights = with;
  else
    from.load = with;
  validations = (struct validations){0};
  return fill(m, &from);
}

int library_load(struct library *m, const char *path)
{
  char *same = (char *)(uintptr_t)path;
  return library_call(m, load, same);
}

static bool take(struct library *m, const char *path, const char *token, struct failure *why)
{
  struct failure note = {""};
  if (!folder_make(path, why) || !folder_is_ours(path, false, why) ||
      !folder_take(&m->folder, path, token, &note, why))
    return false;
  tell(m, &note);
  return true;
}

static bool save(struct library *m, void *with)
{
  struct saving *what = with;
  struct failure why = {""};
  char token[TOKEN] = "";
  if (what->kind == CHECKPOINT && program->loss < 0)
    return failed(&m->error, "the model only goes forward: it can only export parameters");
  if (rank->id == 0) folder_token(token);
  target_share(token, sizeof token);
  what->token = token;
  what->step = m->step;
  what->folder = &m->folder;
  const bool ok = all_ranks_ok(rank->id != 0 || take(m, what->directory, token, &why), &why) &&
                  save_together(what);
  folder_release(&m->folder);
  return ok;
}

// A file above the system's limit is an error of the write, not a signal.
static int save_quietly(struct library *m, struct saving *what)
{
  sigset_t limit, before, now;
  sigemptyset(&limit);
  sigaddset(&limit, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &limit, &before);
  const int status = library_call(m, save, what);
  if (sigpending(&now) == 0 && sigismember(&now, SIGXFSZ) && !sigismember(&before, SIGXFSZ))
    sigtimedwait(&limit, NULL, &(struct timespec){0});
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return status;
}

int library_save(struct library *m, const char *folder)
{
  return save_quietly(m, &(struct saving){.directory = folder, .kind = CHECKPOINT});
}

int library_export(struct library *m, const char *folder)
{
  return save_quietly(m, &(struct saving){.directory = folder, .kind = EXPORT});
}

// ---- what the runtime asks
// -----------------------------------------------------------------------

// The position in the data is the caller's.
struct position batches_position(long batch)
{
  (void)batch;
  return (struct position){0};
}

void batches_go_on(long batch, const struct position *at)
{
  (void)batch, (void)at;
}

long tokens_of_batch(void)
{
  return 0;
}

void set_deadline_factor(int deadlines)
{
  struct watch *w = &entered->watch;
  if (!w->runs) return;
  pthread_mutex_lock(&w->lock);
  w->deadline_factor = deadlines;
  pthread_mutex_unlock(&w->lock);
}
