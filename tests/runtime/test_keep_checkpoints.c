// Checkpoints that are no longer kept go as a whole: whenever a job is killed meanwhile, what looks
// like a checkpoint has all its files, and the next job clears what is left.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/wait.h>
#include <unistd.h>
#include "temporary.h"

// The job is killed at one of its calls.
static int calls_left = -1;

static void count_call(void)
{
  if (calls_left-- == 0) _exit(9);
}

static int killed_unlink(const char *name)
{
  count_call();
  return unlink(name);
}

static int killed_rename(const char *from, const char *to)
{
  count_call();
  return rename(from, to);
}

static int killed_rmdir(const char *name)
{
  count_call();
  return rmdir(name);
}

#define unlink killed_unlink
#define rename killed_rename
#define rmdir  killed_rmdir
#include "../../runtime/checkpoint/keep_checkpoints.c"
#undef unlink
#undef rename
#undef rmdir

enum { PARTS = 3, KEPT = 4 };

static void put_file(const char *folder, int part)
{
  static const char text[] = "{\"__metadata__\":{\"written_by\":\"tpgen\"}}      ";
  char name[PATH_MAX + 64];
  const uint64_t count = sizeof text - 1;
  snprintf(name, sizeof name, "%s/model-%05d-of-%05d.safetensors", folder, part + 1, PARTS);
  FILE *f = fopen(name, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(&count, sizeof count, 1, f), 1);
  assert_int_equal(fwrite(text, 1, count, f), count);
  assert_int_equal(fclose(f), 0);
}

static void keep_all(void)
{
  char name[KEPT_NAME], folder[PATH_MAX];
  for (int step = 1; step <= KEPT; step++) {
    path_in(directory, keep_name(step, name), folder);
    if (access(folder, F_OK) != 0) assert_int_equal(mkdir(folder, 0777), 0);
    for (int part = 0; part < PARTS; part++) put_file(folder, part);
  }
}

// How many folders there are; each that has a step's name has all its files.
static int count_folders(void)
{
  int count = 0;
  char file[PATH_MAX + 64];
  DIR *all = opendir(directory);
  for (struct dirent *d; (d = readdir(all));) {
    if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0) continue;
    count++;
    for (int part = 0; part < PARTS && d->d_name[0] != '.'; part++) {
      snprintf(file, sizeof file, "%s/%s/model-%05d-of-%05d.safetensors", directory, d->d_name,
               part + 1, PARTS);
      if (access(file, F_OK) != 0) fail_msg("%s is not whole", d->d_name);
    }
  }
  closedir(all);
  return count;
}

static void test_a_job_is_killed(void **state)
{
  int status = -1;
  struct failure why = {""};
  (void)state;
  for (int calls = 0; status != 0; calls++) {
    keep_all();
    const pid_t child = fork();
    if (child == 0) {
      calls_left = calls;
      _exit(!keep_last(directory, 1, &why));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    count_folders();
    assert_true(keep_last(directory, 1, &why));
    assert_int_equal(count_folders(), 1);
    assert_true(calls < 100);
  }
}

static void test_anothers_file(void **state)
{
  char name[PATH_MAX];
  struct failure why = {""};
  (void)state;
  keep_all();
  snprintf(name, sizeof name, "%s/step-00000001/notes", directory);
  fclose(fopen(name, "w"));
  assert_false(keep_last(directory, 1, &why));
  assert_int_equal(count_folders(), KEPT);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_job_is_killed),
                                     cmocka_unit_test(test_anothers_file)};
  return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
