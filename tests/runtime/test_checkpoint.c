// Saving and loading: on every mesh, in one file or several, and wherever a save is interrupted.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "row_of_ranks.h"

// The process dies when it has made so many of the calls that change files; 0: it does not.
static int calls_left;

static void count_call(void)
{
  if (calls_left > 0 && --calls_left == 0) _exit(9);
}

// ---- what a loss of power would take -----------------------------------------------------------

// Files with bytes that are not on the disk yet, by their inodes; whether a name is not; and what a
// save did first, if anything, that a loss of power could make a broken checkpoint of.
static struct {
  ino_t file[64];
  int nfile;
  bool name;
  const char *risk;
} unsynced;

static void risk(const char *what)
{
  if (!unsynced.risk) unsynced.risk = what;
}

static int find_unsynced(ino_t file)
{
  int i = 0;
  while (i < unsynced.nfile && unsynced.file[i] != file) i++;
  return i;
}

static void note_write(int fd)
{
  struct stat about;
  if (fstat(fd, &about) != 0 || find_unsynced(about.st_ino) < unsynced.nfile) return;
  assert_true(unsynced.nfile < 64);
  unsynced.file[unsynced.nfile++] = about.st_ino;
}

// No death of a process loses what is not synced: nothing has to be done.
static int note_sync(int fd)
{
  struct stat about;
  if (fd < 0 || fstat(fd, &about) != 0) return -1;
  int at = find_unsynced(about.st_ino);
  if (S_ISDIR(about.st_mode))
    unsynced.name = false;
  else if (at < unsynced.nfile)
    unsynced.file[at] = unsynced.file[--unsynced.nfile];
  return 0;
}

static bool is_new_name(const char *path)
{
  const char *slash = strrchr(path, '/');
  return slash && slash[1] == '.';
}

static int note_rename(const char *from, const char *to)
{
  struct stat about;
  if (stat(from, &about) == 0 && find_unsynced(about.st_ino) < unsynced.nfile)
    risk("a file counts before its bytes are synced");
  if (strstr(to, "index.json") && unsynced.name) risk("the index counts before its parts' names");
  unsynced.name = true;
  return rename(from, to);
}

static int note_link(const char *from, const char *to)
{
  struct stat about;
  if (stat(from, &about) == 0 && find_unsynced(about.st_ino) < unsynced.nfile)
    risk("a part has its name before its bytes are synced");
  unsynced.name = true;
  return link(from, to);
}

static int note_unlink(const char *path)
{
  if (!is_new_name(path) && unsynced.name)
    risk("an old file goes before the new one's name is synced");
  return unlink(path);
}

#define open(...)              (count_call(), open(__VA_ARGS__))
#define close(...)             (count_call(), close(__VA_ARGS__))
#define fsync(fd)              (count_call(), note_sync(fd))
#define rename(...)            (count_call(), note_rename(__VA_ARGS__))
#define link(...)              (count_call(), note_link(__VA_ARGS__))
#define unlink(...)            (count_call(), note_unlink(__VA_ARGS__))
#define posix_fallocate(...)   (count_call(), posix_fallocate(__VA_ARGS__))
#define safetensors_write(...) (count_call(), note_write(fd), safetensors_write(__VA_ARGS__))
#include "../../runtime/checkpoint/checkpoint.c"
#undef open
#undef close
#undef fsync
#undef rename
#undef link
#undef unlink
#undef posix_fallocate
#undef safetensors_write

static void save_shards(int ranks, int step, uint64_t shard_bytes)
{
  save_as(ranks,
          &(struct saving){directory, CHECKPOINT, step, shard_bytes, TOKEN_HERE, &folder, 0});
}

static int count_files(void)
{
  int count = 0;
  DIR *d = opendir(directory);
  assert_non_null(d);
  for (struct dirent *e; (e = readdir(d));)
    count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
  closedir(d);
  return count;
}

// A state to tell apart: all that is saved depends on the step.
static void mark(int ranks, int step)
{
  for (int id = 0; id < ranks; id++)
    for (int row = 0; row < TENSORS; row++) {
      become(id, ranks);
      const struct tensor *t = &tensors[row];
      if (t->type != F32 || (t->role != PARAMETER && t->role != STATE)) continue;
      for (int k = 0; k < t->count; k++)
        for (long i = 0; i < t->here[0] * (t->ndim > 1 ? t->here[1] : 1); i++)
          float_at(id, t->offset + (size_t)k * t->stride)[i] = (float)(step * 1000 + row);
    }
}

// What one mesh saves, another loads, bit by bit; and training goes on at its step.
static void loads_on_another_mesh(void **state)
{
  (void)state;
  static char before[2 * MEMORY], after[2 * MEMORY];
  fill(3, NULL);
  for (int id = 0; id < 3; id++)
    for (int i = 0; i < 6; i++) float_at(id, tensors[MOMENT].offset)[i] = (float)(100 * id + i);
  save(3, 7);
  size_t bytes = read_file(saved, before, sizeof before);
  for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
    for (uint64_t shard = 0; shard <= 4000; shard = shard ? shard * 5 : 150) {
      save_shards(3, 7, shard);
      assert_int_equal(fill(ranks, directory), 7);
      save(ranks, 7);
      assert_int_equal(read_file(saved, after, sizeof after), bytes);
      assert_memory_equal(after, before, bytes);
      assert_int_equal(fill(3, saved), 7);
    }
}

static void saved_metadata(void **state)
{
  (void)state;
  struct safetensors file;
  struct failure why = {""};
  fill(2, NULL);
  save(2, 42);
  assert_true(safetensors_open(&file, saved, &why));
  assert_int_equal(file.count, 4 + 2 * STACK); // PARAMETER and STATE
  assert_string_equal(safetensors_metadata(&file, "step"), "42");
  assert_string_equal(safetensors_metadata(&file, "plan_hash"), program->hash);
  assert_null(safetensors_find(&file, "tokens"));
  assert_null(safetensors_find(&file, "result"));
  safetensors_close(&file);
  assert_int_equal(count_files(), 1);
}

// ---- several files -----------------------------------------------------------------------------

static const char *text_of(const char *path)
{
  static char text[20000];
  text[read_file(path, text, sizeof text - 1)] = 0;
  return text;
}

// As many files as the bytes ask for, a tensor that is larger in one of its own.
static void shards_have_their_size(void **state)
{
  (void)state;
  fill(2, NULL);
  save_shards(2, 1, 100); // 60, 12 + 28, 12 x 48, 60, 12 x 48 bytes
  assert_int_equal(count_files(), 14 + 1);
  assert_non_null(strstr(text_of(index_path), "\"model-00001-of-00014.safetensors\""));
  assert_non_null(strstr(text_of(index_path), "\"total_size\": 1312"));
  save_shards(2, 2, 1); // each its own
  assert_int_equal(count_files(), 4 + 2 * STACK + 1);
  save_shards(2, 3, 1); // the names of the last ones are not free
  assert_int_equal(count_files(), 4 + 2 * STACK + 1);
  assert_non_null(strstr(text_of(index_path), "\"model-2-00001-of-00028.safetensors\""));
  save_shards(2, 4, 1 << 20);
  assert_int_equal(count_files(), 1);
  assert_int_equal(fill(3, directory), 4);
}

static void refused(const char *says)
{
  int step;
  struct failure why = {""};
  if (fill_checked(2, &(struct origins){.load = directory}, &step, &why))
    fail_msg("taken, though: %s", says);
  if (!strstr(why.text, says)) fail_msg("said: %s\nnot: %s", why.text, says);
}

// Writes the index anew with one text instead of another.
static void change_index(const char *from, const char *to)
{
  char text[20000];
  snprintf(text, sizeof text, "%s", text_of(index_path));
  char *at = strstr(text, from);
  assert_non_null(at);
  FILE *f = fopen(index_path, "w");
  assert_non_null(f);
  fprintf(f, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
  assert_int_equal(fclose(f), 0);
}

static void wrong_indices(void **state)
{
  (void)state;
  char part[200];
  static const char *const rows[][3] = {
      {"\"weight_map\"", "\"map\"", "it has no weight_map"},
      {"\"weight\": \"model-00001-of-00003.safetensors\"", "\"weight\": \"../x.safetensors\"",
       "does not say in which file beside it weight is"},
      {"\"weight\": \"model-00001-of-00003.safetensors\"", "\"weight\": 1",
       "does not say in which file beside it weight is"},
      {"\"weight\": \"model-00001-of-00003.safetensors\"",
       "\"weight\": \"model-00002-of-00003.safetensors\"", "lists for model-00002"},
      {"\"weight\": \"model-00001-of-00003.safetensors\"",
       "\"weight\": \"model-00009-of-00003.safetensors\"", "No such file"},
      {"\"weight\": \"model-00001-of-00003.safetensors\",", "", "does not list"},
      {"\"weight\":", "\"more\": \"model-00001-of-00003.safetensors\", \"weight\":",
       "it lists more, which none of its files has"},
      {"\"weight\":", "\"weight\": \"model-00001-of-00003.safetensors\", \"weight\":", "duplicate"},
      {"{", "", "not an index in JSON"},
  };
  fill(2, NULL);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    save_shards(2, 1, 600);
    if (strstr(text_of(index_path), "model-2-")) save_shards(2, 1, 600);
    change_index(rows[i][0], rows[i][1]);
    refused(rows[i][2]);
    assert_int_equal(unlink(index_path), 0); // it is nobody's now
    save(2, 1);
  }
  save_shards(2, 1, 600);
  snprintf(part, sizeof part, "%s/model-00002-of-00003.safetensors", directory);
  assert_int_equal(truncate(part, 1700), 0);
  refused("cut short");
  assert_int_equal(unlink(part), 0);
  refused("No such file");
  assert_int_equal(unlink(index_path), 0);
  refused("the folder has neither model.safetensors nor model.safetensors.index.json");
  save(2, 1);
}

// Files of two saves are no checkpoint.
static void mixed_parts(void **state)
{
  (void)state;
  char part[200], text[4000];
  fill(2, NULL);
  save(2, 1);
  save_shards(2, 1, 600);
  snprintf(part, sizeof part, "%s/model-00002-of-00003.safetensors", directory);
  size_t bytes = read_file(part, text, sizeof text);
  save(2, 1);
  save_shards(2, 2, 600);
  FILE *f = fopen(part, "wb");
  assert_non_null(f);
  fwrite(text, 1, bytes, f);
  assert_int_equal(fclose(f), 0);
  refused("no checkpoint: it does not say which step");
  save(2, 1);
}

// ---- changed files -----------------------------------------------------------------------------

// A bit that changes after the save is found, wherever it is, on every mesh; one rank may well look
// at another's.
static void changed_bits(void **state)
{
  (void)state;
  static char right[20000];
  int step;
  struct failure why;
  const struct origins from = {.load = directory};
  fill(3, NULL);
  save(3, 1);
  size_t bytes = read_file(saved, right, sizeof right), found = 0;
  for (size_t i = 0; i < bytes; i += 1 + i % 3) {
    char wrong = (char)(right[i] ^ 1 << i % 8);
    int fd = open(saved, O_WRONLY);
    assert_int_equal(pwrite(fd, &wrong, 1, (off_t)i), 1);
    if (fill_checked(1 + (int)(i % 4), &from, &step, &why)) fail_msg("byte %zu is taken", i);
    found += strstr(why.text, "its bytes have changed") != NULL;
    assert_int_equal(pwrite(fd, &right[i], 1, (off_t)i), 1);
    close(fd);
  }
  assert_true(found > 600);
  assert_int_equal(fill(2, directory), 1);
}

// The message says which tensor; who insists takes it as it is.
static void changed_tensor(void **state)
{
  (void)state;
  struct progress progress;
  struct failure why = {""};
  const char right = 'x';
  fill(2, NULL);
  save(2, 1);
  int fd = open(saved, O_WRONLY);
  struct safetensors file;
  assert_true(safetensors_open(&file, saved, &why));
  uint64_t at = file.data + safetensors_find(&file, "layers.7.w")->begin;
  safetensors_close(&file);
  assert_int_equal(pwrite(fd, &right, 1, (off_t)at), 1);
  close(fd);
  refused("model.safetensors: layers.7.w: its bytes have changed since they were saved");
  become(0, 2);
  assert_true(tensors_fill(&(struct origins){.load = directory}, &progress, &why));
}

// Parts of two saves of the same step.
static void parts_of_two_saves(void **state)
{
  (void)state;
  char part[200], text[8000];
  fill(2, NULL);
  save(2, 1);
  save_shards(2, 1, 600);
  snprintf(part, sizeof part, "%s/model-00002-of-00003.safetensors", directory);
  size_t bytes = read_file(part, text, sizeof text);
  float_at(0, tensors[MOMENT].offset)[0] += 1;
  save(2, 1);
  save_shards(2, 1, 600);
  FILE *f = fopen(part, "wb");
  assert_non_null(f);
  fwrite(text, 1, bytes, f);
  assert_int_equal(fclose(f), 0);
  refused("its files are not of one save");
  save(2, 1);
}

// ---- interrupted saves -------------------------------------------------------------------------

// In a child: marks and saves, and dies at the call of that number. False where it got to the end.
static bool dies_at(int call, int step, uint64_t shard_bytes)
{
  int status;
  pid_t child = fork();
  if (child == 0) {
    mark(2, step);
    calls_left = call;
    save_shards(2, step, shard_bytes);
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 9 || WEXITSTATUS(status) == 0));
  return WEXITSTATUS(status) == 9;
}

// Whole: all that was saved is of the step that the checkpoint says.
static int loaded_step(void)
{
  int step = fill(2, directory);
  for (int id = 0; id < 2; id++)
    for (int row = 0; row < TENSORS; row++) {
      become(id, 2);
      const struct tensor *t = &tensors[row];
      if (t->type != F32 || (t->role != PARAMETER && t->role != STATE)) continue;
      for (int k = 0; k < t->count; k++)
        for (long i = 0; i < t->here[0] * (t->ndim > 1 ? t->here[1] : 1); i++) {
          int got = (int)float_at(id, t->offset + (size_t)k * t->stride)[i];
          if (got != step * 1000 + row) fail_msg("step %d has %d", step, got);
        }
    }
  return step;
}

// Whatever call a save dies at, the old checkpoint or the new one loads, and the next save works.
static void dies_at_every_call(void **state)
{
  (void)state;
  static const uint64_t sizes[] = {0, 600, 400, 600, 0, 400};
  int step = 1, deaths = 0, news = 0;
  fill(2, NULL);
  mark(2, step);
  save(2, step);
  for (size_t i = 1; i < sizeof sizes / sizeof *sizes; i++)
    for (int call = 1;; call++) {
      fill(2, NULL);
      mark(2, step);
      save_shards(2, step, sizes[i - 1]); // the old one, of the size before
      bool died = dies_at(call, step + 1, sizes[i]);
      int found = loaded_step();
      if (found != step && found != step + 1) fail_msg("it has step %d, not %d", found, step);
      deaths += died;
      news += died && found == step + 1;
      step = found + 1;
      if (died) continue;
      assert_int_equal(found, step - 1);
      break;
    }
  assert_true(deaths > 200);
  assert_true(news > 5); // it died when the new one counted already
  fill(2, NULL);
  mark(2, step);
  save(2, step);
  assert_int_equal(count_files(), 1);
}

// Whatever is replaced by what: a loss of power leaves the old checkpoint or the new one, too.
static void syncs_before_it_counts(void **state)
{
  (void)state;
  static const uint64_t sizes[] = {0, 0, 600, 400, 600, 0};
  fill(2, NULL);
  memset(&unsynced, 0, sizeof unsynced);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    save_shards(2, (int)i + 1, sizes[i]);
    if (unsynced.risk) fail_msg("shards of %d bytes: %s", (int)sizes[i], unsynced.risk);
    assert_int_equal(unsynced.nfile, 0);
    assert_false(unsynced.name);
  }
}

// A save that fails leaves the old file as it was, and nothing beside it.
static void old_file_stays(void **state)
{
  (void)state;
  static char before[2 * MEMORY], after[2 * MEMORY];
  struct failure why = {""};
  fill(2, NULL);
  save(2, 1);
  size_t bytes = read_file(saved, before, sizeof before);

  struct saves saves =
      begin_save(2, &(struct saving){directory, CHECKPOINT, 2, 0, TOKEN_HERE, &folder, 0});
  assert_int_equal(access(beside, F_OK), 0);
  save_abandon(saves.of[0]);
  assert_int_equal(access(beside, F_OK), -1);
  assert_false(save_write(saves.of[0], &why)); // nothing has been made
  assert_non_null(strstr(why.text, "cannot open what rank 0 made"));
  assert_false(save_commit(saves.of[0], &why));
  end_save(&saves);
  saves = begin_save(2, &(struct saving){directory, CHECKPOINT, 2, 100, TOKEN_HERE, &folder, 0});
  assert_true(count_files() > 2);
  save_abandon(saves.of[0]);
  end_save(&saves);
  assert_int_equal(count_files(), 1);

  assert_int_equal(read_file(saved, after, sizeof after), bytes);
  assert_memory_equal(after, before, bytes);
}

// A disk that is full, for files of more than so many bytes: the old checkpoint stays, with nothing
// beside it. The parts may find room and their index none.
static void no_room(void **state)
{
  (void)state;
  static const struct {
    uint64_t shard_bytes;
    rlim_t room;
    const char *says;
  } rows[] = {
      {0, 2000, ".model.safetensors." TOKEN_HERE ".tmp: no room for"},
      {600, 1000, ".model-00001-of-00003.safetensors." TOKEN_HERE ".tmp: no room for"},
      {100, 1300, ".model.safetensors.index.json." TOKEN_HERE ".tmp: cannot write: File too large"},
  };
  struct failure why = {""}, note;
  struct rlimit before, small;
  signal(SIGXFSZ, SIG_IGN);
  fill(2, NULL);
  save(2, 3);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct save *s = save_plan(
        &(struct saving){directory, CHECKPOINT, 4, rows[i].shard_bytes, TOKEN_HERE, &folder, 0},
        &why);
    assert_non_null(s);
    assert_true(folder_take(&folder, directory, TOKEN_HERE, &note, &why));
    small = (struct rlimit){rows[i].room, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    bool saved = save_create(s, &why) && save_write(s, &why) && save_commit(s, &why);
    if (!saved) save_abandon(s);
    save_end(s);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    folder_release(&folder);
    assert_false(saved);
    if (!strstr(why.text, rows[i].says)) fail_msg("said: %s\nnot: %s", why.text, rows[i].says);
    assert_int_equal(count_files(), 1);
    assert_int_equal(fill(2, directory), 3);
  }
}

// What a killed job left beside is no obstacle.
static void leftovers_are_replaced(void **state)
{
  (void)state;
  FILE *f = fopen(beside, "wb");
  assert_non_null(f);
  for (int i = 0; i < 100000; i++) fputc('x', f);
  assert_int_equal(fclose(f), 0);
  fill(2, NULL);
  save(2, 5);
  assert_int_equal(fill(2, saved), 5);
}

static void directories(void **state)
{
  (void)state;
  char deep[200], part[200];
  struct failure why = {""};
  snprintf(deep, sizeof deep, "%s/a/b//c/", directory);
  assert_true(folder_make(deep, &why));
  assert_int_equal(access(deep, F_OK), 0);
  assert_true(folder_make(deep, &why));
  for (const char *const *p = (const char *const[]){"a/b/c", "a/b", "a", NULL}; *p; p++) {
    snprintf(part, sizeof part, "%s/%s", directory, *p);
    assert_int_equal(rmdir(part), 0);
  }
  fill(1, NULL);
  save(1, 1);
  assert_false(folder_make(saved, &why));
  assert_non_null(strstr(why.text, "Not a directory"));
  struct save *none =
      save_plan(&(struct saving){"/proc/none", CHECKPOINT, 1, 0, TOKEN_HERE, &folder, 0}, &why);
  assert_non_null(none);
  assert_false(save_create(none, &why));
  save_end(none);
  assert_false(folder_make("", &why));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(loads_on_another_mesh),
      cmocka_unit_test(saved_metadata),
      cmocka_unit_test(shards_have_their_size),
      cmocka_unit_test(wrong_indices),
      cmocka_unit_test(mixed_parts),
      cmocka_unit_test(changed_bits),
      cmocka_unit_test(changed_tensor),
      cmocka_unit_test(parts_of_two_saves),
      cmocka_unit_test(dies_at_every_call),
      cmocka_unit_test(syncs_before_it_counts),
      cmocka_unit_test(old_file_stays),
      cmocka_unit_test(no_room),
      cmocka_unit_test(leftovers_are_replaced),
      cmocka_unit_test(directories),
  };
  return cmocka_run_group_tests(tests, make_paths, remove_directory);
}
