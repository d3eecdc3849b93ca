// A folder belongs to one job alone, and other files in it stay.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "row_of_ranks.h"

// On a file system with locks, or without any; on this machine, or another one.
static bool no_locks;
static const char *host;

static int lock_or_not(int fd, int how)
{
  if (!no_locks) return flock(fd, how);
  errno = ENOLCK;
  return -1;
}

static int name_host(char *to, size_t size)
{
  if (!host) return gethostname(to, size);
  snprintf(to, size, "%s", host);
  return 0;
}

#define flock       lock_or_not
#define gethostname name_host
#include "../../runtime/checkpoint/save_folder.c"
#undef flock
#undef gethostname

static char lock_path[128];

static int begin(void **state)
{
  no_locks = false;
  host = NULL;
  if (make_paths(state) != 0) return -1;
  snprintf(lock_path, sizeof lock_path, "%s/.tpgen.lock", directory);
  return 0;
}

static int end(void **state)
{
  folder_release(&folder);
  int status = remove_directory(state);
  strcpy(directory, "/tmp/tensors.XXXXXX");
  return status;
}

static void put_file(const char *name, const char *text)
{
  char path[200];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs(text, f);
  assert_int_equal(fclose(f), 0);
}

static bool is_here(const char *name)
{
  char path[200];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return access(path, F_OK) == 0;
}

static void takes(struct folder *f, const char *token, const char *notes)
{
  struct failure note, why = {""};
  if (!folder_take(f, directory, token, &note, &why)) fail_msg("%s", why.text);
  if (!notes && *note.text) fail_msg("noted: %s", note.text);
  if (notes && !strstr(note.text, notes)) fail_msg("noted: %s\nnot: %s", note.text, notes);
}

static void is_refused(const char *says)
{
  struct folder f;
  struct failure note, why = {""};
  if (folder_take(&f, directory, "other-2-0", &note, &why)) fail_msg("taken, though: %s", says);
  if (!strstr(why.text, says)) fail_msg("said: %s\nnot: %s", why.text, says);
  folder_release(&f);
}

// Who comes second gets a message that names the holder; the end of the holder, by whatever way,
// gives it back.
static void one_job_at_a_time(void **state)
{
  (void)state;
  int status;
  char who[160], me[64] = "";
  takes(&folder, "here-1-0", NULL);
  gethostname(me, sizeof me - 1);
  snprintf(who, sizeof who, "another job saves here: process %d on %s, since 20", (int)getpid(),
           me);
  is_refused(who);
  is_refused("or give this job a folder of its own");
  folder_release(&folder);
  assert_false(is_here(".tpgen.lock"));

  pid_t child = fork();
  if (child == 0) {
    takes(&folder, "child-1-0", NULL);
    raise(SIGKILL);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status));
  assert_true(is_here(".tpgen.lock"));
  takes(&folder, "here-1-0", NULL);
}

// A holder's unfinished files stay, those of the dead go, and nobody else's do.
static void leftovers(void **state)
{
  (void)state;
  static const char *const unfinished[] = {".model.safetensors.tmp",
                                           ".model.safetensors.index.json.tmp",
                                           ".model.safetensors.index.json.vm-7-00ff.tmp",
                                           ".model.safetensors.vm-7-00ff.tmp",
                                           ".model-00001-of-00002.safetensors.vm-7-00ff.tmp",
                                           ".model-00001-of-00002.safetensors.tmp",
                                           ".outputs.safetensors.vm-7-00ff.tmp"};
  static const char *const others[] = {".model.tmp", ".model-of-mine.safetensors.tmp",
                                       ".models.safetensors.tmp", "model.safetensors.tmp", "x.tmp"};
  enum { UNFINISHED = sizeof unfinished / sizeof *unfinished };
  enum { OTHERS = sizeof others / sizeof *others };
  takes(&folder, "here-1-0", NULL);
  for (size_t i = 0; i < UNFINISHED; i++) put_file(unfinished[i], "x");
  for (size_t i = 0; i < OTHERS; i++) put_file(others[i], "x");
  is_refused("another job saves here");
  for (size_t i = 0; i < UNFINISHED; i++) assert_true(is_here(unfinished[i]));
  folder_release(&folder);
  takes(&folder, "here-1-1", NULL);
  for (size_t i = 0; i < UNFINISHED; i++)
    if (is_here(unfinished[i])) fail_msg("%s is left", unfinished[i]);
  for (size_t i = 0; i < OTHERS; i++) assert_true(is_here(others[i]));
}

// The lock's file is removed, or put there by somebody, while it is held.
static void removed_lock(void **state)
{
  (void)state;
  struct failure why = {""};
  takes(&folder, "here-1-0", NULL);
  assert_true(folder_keep(&folder, &why));
  assert_int_equal(unlink(lock_path), 0);
  assert_true(folder_keep(&folder, &why));
  is_refused("another job saves here");
  assert_int_equal(unlink(lock_path), 0);
  struct folder second;
  takes(&second, "other-2-0", NULL);
  assert_false(folder_keep(&folder, &why));
  assert_non_null(strstr(why.text, "another job has taken this folder"));
  folder_release(&folder);
  assert_true(is_here(".tpgen.lock")); // the second's
  folder_release(&second);
  assert_false(is_here(".tpgen.lock"));

  assert_int_equal(mkfifo(lock_path, 0666), 0);
  is_refused("not a file");
  assert_int_equal(unlink(lock_path), 0);
  assert_int_equal(symlink(saved, lock_path), 0);
  is_refused("cannot open");
  assert_int_equal(access(saved, F_OK), -1);
}

// Where there are no locks the later job has the folder, and the earlier one finds out before what
// it writes counts: no file of the later one is touched.
static void without_locks(void **state)
{
  (void)state;
  struct folder later;
  struct failure why = {""};
  no_locks = true;
  takes(&folder, "here-1-0", "has no locks");
  is_refused("another job saves here: process"); // of this machine one can see that it runs
  struct save *s =
      save_plan(&(struct saving){directory, CHECKPOINT, 1, 0, "here-1-0", &folder, 0}, &why);
  become(0, 1);
  assert_true(s && save_create(s, &why) && save_write(s, &why));
  host = "elsewhere";
  takes(&later, "there-2-0", "if there still is process");
  assert_false(save_commit(s, &why));
  assert_non_null(strstr(why.text, "another job has taken this folder: process"));
  save_abandon(s);
  save_end(s);
  assert_false(is_here("model.safetensors"));
  folder_release(&folder);
  assert_true(is_here(".tpgen.lock"));
  assert_true(folder_keep(&later, &why));
  folder_release(&later);
  assert_false(is_here(".tpgen.lock"));
}

// A file that another put in the place of an unfinished one gets no name.
static void another_file(void **state)
{
  (void)state;
  char other[200];
  struct failure why = {""};
  takes(&folder, TOKEN_HERE, NULL);
  become(0, 1);
  struct save *s =
      save_plan(&(struct saving){directory, CHECKPOINT, 1, 0, TOKEN_HERE, &folder, 0}, &why);
  assert_true(s && save_create(s, &why) && save_write(s, &why));
  put_file("other", "another's");
  snprintf(other, sizeof other, "%s/other", directory);
  assert_int_equal(rename(other, beside), 0);
  assert_false(save_commit(s, &why));
  assert_non_null(strstr(why.text, "it is not the file that this job made"));
  assert_false(is_here("model.safetensors"));
  save_abandon(s);
  save_end(s);
}

static void is_seen(bool outputs, const char *name)
{
  struct failure why = {""};
  if (folder_is_ours(directory, outputs, &why)) fail_msg("%s would be replaced", name);
  if (!strstr(why.text, name)) fail_msg("said: %s\nnot: %s", why.text, name);
}

static void others_files(void **state)
{
  (void)state;
  static const char *const others[] = {"model.safetensors", "model-00001-of-00002.safetensors",
                                       "model-3-00007-of-00009.safetensors",
                                       "model.safetensors.index.json"};
  char path[200];
  struct failure why = {""};
  const char empty[] = "{\"weight_map\": {\"w\": \"model-00001-of-00001.safetensors\"}}";
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    put_file(others[i], empty);
    is_seen(false, others[i]);
    assert_true(folder_is_ours(directory, true, &why));
    snprintf(path, sizeof path, "%s/%s", directory, others[i]);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("nowhere", path), 0);
    is_seen(false, others[i]);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0666), 0);
    is_seen(false, others[i]);
    assert_int_equal(unlink(path), 0);
  }
  put_file("outputs.safetensors", "");
  is_seen(true, "outputs.safetensors");
  put_file("config.json", "");
  put_file("model-1-of-2.safetensors", "");
  put_file("model-00001-of-00002.safetensors.bak", "");
  if (!folder_is_ours(directory, false, &why)) fail_msg("%s", why.text);

  // What came while the job ran is not replaced, and what it wrote itself is.
  fill(1, NULL);
  for (uint64_t shard = 0; shard < 1000; shard += 300)
    for (int kind = CHECKPOINT; kind <= EXPORT; kind++) {
      save_as(1,
              &(struct saving){directory, (enum save_kind)kind, 1, shard, TOKEN_HERE, &folder, 0});
      if (!folder_is_ours(directory, false, &why)) fail_msg("%s", why.text);
    }
  put_file("model-00001-of-00009.safetensors", "another's");
  save(1, 1);
  assert_true(is_here("model-00001-of-00009.safetensors"));
  put_file("model.safetensors", "another's");
  takes(&folder, TOKEN_HERE, NULL);
  for (uint64_t shard = 0; shard < 1000; shard += 300) {
    struct save *s =
        save_plan(&(struct saving){directory, CHECKPOINT, 1, shard, TOKEN_HERE, &folder, 0}, &why);
    assert_true(s && save_create(s, &why) && save_write(s, &why));
    assert_false(save_commit(s, &why));
    assert_non_null(strstr(why.text, "it holds model.safetensors, which no checkpoint"));
    save_abandon(s);
    save_end(s);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(one_job_at_a_time, begin, end),
      cmocka_unit_test_setup_teardown(leftovers, begin, end),
      cmocka_unit_test_setup_teardown(removed_lock, begin, end),
      cmocka_unit_test_setup_teardown(without_locks, begin, end),
      cmocka_unit_test_setup_teardown(another_file, begin, end),
      cmocka_unit_test_setup_teardown(others_files, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
