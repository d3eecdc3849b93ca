// Kinds of paths: regular files are opened, and no other kind blocks.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/open_input.h"
#include "formats/safetensors.h"
#include "formats/safetensors_set.h"

static char folder[] = "/tmp/tpgen-files-XXXXXX";

static const char *in_folder(const char *name)
{
  static char path[sizeof folder + 80];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void write_text(const char *name, const char *text)
{
  FILE *file = fopen(in_folder(name), "w");
  assert_non_null(file);
  fputs(text, file);
  assert_int_equal(fclose(file), 0);
}

static int make_all(void **state)
{
  (void)state;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  alarm(60); // what waits ends the test
  assert_non_null(mkdtemp(folder));
  write_text("file", "12345");
  assert_int_equal(mkfifo(in_folder("fifo"), 0666), 0);
  assert_int_equal(symlink("fifo", in_folder("link")), 0);
  assert_int_equal(symlink("file", in_folder("good")), 0);
  snprintf(address.sun_path, sizeof address.sun_path, "%s", in_folder("socket"));
  assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
  close(fd);
  return 0;
}

static int remove_all(void **state)
{
  (void)state;
  static const char *const names[] = {"file",
                                      "fifo",
                                      "link",
                                      "good",
                                      "socket",
                                      "new",
                                      "part.safetensors",
                                      "model.safetensors",
                                      "model.safetensors.index.json"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(in_folder(names[i]));
  return rmdir(folder);
}

static void only_regular_files(void **state)
{
  (void)state;
  static const char *const odd[][2] = {{"fifo", "fifo: not a file but a FIFO"},
                                       {"link", "link: not a file but a FIFO"},
                                       {"socket", "socket: not a file but a socket"},
                                       {"", "not a file but a folder"},
                                       {"none", "none: cannot open: No such file"}};
  struct failure why;
  uint64_t size;
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
    assert_int_equal(open_regular(in_folder(odd[i][0]), &size, &why), -1);
    assert_non_null(strstr(why.text, odd[i][1]));
  }
  assert_int_equal(open_regular("/dev/zero", &size, &why), -1);
  assert_string_equal(why.text, "/dev/zero: not a file but a device");
  for (int i = 0; i < 2; i++) {
    int fd = open_regular(in_folder(i ? "good" : "file"), &size, &why);
    assert_true(fd >= 0);
    assert_int_equal(size, 5);
    close(fd);
  }
}

// Somewhere within a folder of weights.
static void weights(void **state)
{
  (void)state;
  struct archive archive;
  struct failure why;
  assert_int_equal(symlink("fifo", in_folder("model.safetensors.index.json")), 0);
  assert_false(archive_open(&archive, folder, &why));
  assert_non_null(strstr(why.text, "model.safetensors.index.json: not a file but a FIFO"));
  unlink(in_folder("model.safetensors.index.json"));
  write_text("model.safetensors.index.json", "{\"weight_map\": {\"a\": \"part.safetensors\"}}");
  assert_int_equal(mkfifo(in_folder("part.safetensors"), 0666), 0);
  assert_false(archive_open(&archive, folder, &why));
  assert_non_null(strstr(why.text, "part.safetensors: not a file but a FIFO"));
  assert_int_equal(symlink("link", in_folder("model.safetensors")), 0);
  assert_false(archive_open(&archive, folder, &why));
  assert_non_null(strstr(why.text, "model.safetensors: not a file but a FIFO"));
}

static void streams(void **state)
{
  (void)state;
  struct failure why;
  assert_null(create_stream(in_folder("fifo"), &why));
  assert_non_null(strstr(why.text, "fifo: nobody reads this FIFO: start its reader first"));
  assert_null(create_stream(in_folder("socket"), &why));
  assert_non_null(strstr(why.text, "socket: cannot create: No such device or address"));
  assert_null(create_stream(folder, &why));
  assert_non_null(strstr(why.text, "cannot create: Is a directory"));

  int reader = open(in_folder("fifo"), O_RDONLY | O_NONBLOCK);
  FILE *file = create_stream(in_folder("fifo"), &why);
  assert_non_null(file);
  assert_false(fcntl(fileno(file), F_GETFL) & O_NONBLOCK);
  fputs("abc", file);
  assert_int_equal(fclose(file), 0);
  char text[8] = "";
  assert_int_equal(read(reader, text, sizeof text), 3);
  close(reader);

  static const char *const good[] = {"/dev/stdout", "/dev/null", "/dev/full"};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    file = create_stream(good[i], &why);
    assert_non_null(file);
    fclose(file);
  }
  write_text("new", "much that is to go");
  file = create_stream(in_folder("new"), &why);
  assert_non_null(file);
  assert_int_equal(fclose(file), 0);
  struct stat about;
  assert_int_equal(stat(in_folder("new"), &about), 0);
  assert_int_equal(about.st_size, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(only_regular_files),
      cmocka_unit_test(weights),
      cmocka_unit_test(streams),
  };
  return cmocka_run_group_tests(tests, make_all, remove_all);
}
