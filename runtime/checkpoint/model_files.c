// SPDX-License-Identifier: MIT
#include "checkpoint/model_files.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/json_memory.h"
#include "base/open_input.h"

static const char CONFIG[] = "config.json";

static const char *const names[] = {
    CONFIG,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
};

struct text {
  char *bytes; // NULL: there is no such file
  size_t size;
};

// False, and why, if a file of this name cannot be read.
static bool read_text(const char *path, struct text *text, struct failure *why)
{
  struct stat about;
  uint64_t size;
  *text = (struct text){0};
  if (stat(path, &about) != 0 && errno == ENOENT) return true;
  const int fd = open_regular(path, &size, why);
  if (fd < 0) return false;
  text->bytes = malloc(size + 1);
  bool ok = text->bytes || failed(why, "%s: out of memory to copy it", path);
  while (ok && text->size < size) {
    const ssize_t some = read(fd, text->bytes + text->size, size - text->size);
    if (some <= 0) ok = failed(why, "%s: cannot read: %s", path, strerror(some ? errno : EIO));
    if (ok) text->size += (size_t)some;
  }
  close(fd);
  if (ok) return true;
  free(text->bytes);
  return false;
}

// Of the model, and of its parts: those of several modalities have a config of their own.
static void mend(json_t *config)
{
  static const char *const types[] = {"dtype", "torch_dtype"};
  const char *name;
  json_t *value;
  void *next;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (json_is_string(json_object_get(config, types[i])))
      json_object_set_new(config, types[i], json_string("float32"));
  json_object_del(config, "quantization_config");
  json_object_foreach_safe(config, next, name, value)
  {
    const char *end = strstr(name, "_config");
    if (end && !end[strlen("_config")] && json_is_object(value)) mend(value);
  }
}

static bool mend_config(const char *path, struct text *text, struct failure *why)
{
  json_error_t error;
  json_t *config = json_loadb(text->bytes, text->size, JSON_REJECT_DUPLICATES, &error);
  if (!json_is_object(config)) {
    json_decref(config);
    return !json_memory_ended() || failed(why, "%s: out of memory to copy it", path);
  }
  mend(config);
  char *mended = json_dumps(config, JSON_INDENT(2));
  json_decref(config);
  if (json_memory_ended() || !mended) {
    free(mended);
    return failed(why, "%s: out of memory to copy it", path);
  }
  free(text->bytes);
  *text = (struct text){mended, strlen(mended)};
  return true;
}

static bool write_text(const char *path, const struct text *text, struct failure *why)
{
  char part[PATH_MAX];
  if (snprintf(part, sizeof part, "%s.tmp", path) >= (int)sizeof part)
    return failed(why, "%s: the path is too long", path);
  FILE *file = create_stream(part, why);
  if (!file) return false;
  bool ok = fwrite(text->bytes, 1, text->size, file) == text->size;
  ok = fclose(file) == 0 && ok && rename(part, path) == 0;
  if (!ok) failed(why, "%s: cannot write: %s", path, strerror(errno));
  if (!ok) unlink(part);
  return ok;
}

static bool copy(const char *from, const char *to, const char *name, struct failure *why)
{
  char old[PATH_MAX], new[PATH_MAX];
  struct text text, there = {0};
  if (snprintf(old, sizeof old, "%s/%s", from, name) >= PATH_MAX ||
      snprintf(new, sizeof new, "%s/%s", to, name) >= PATH_MAX)
    return failed(why, "%s: the path is too long", to);
  if (!read_text(old, &text, why) || !text.bytes) return !*why->text;
  bool ok = (name != CONFIG || mend_config(old, &text, why)) && read_text(new, &there, why);
  const bool same =
      there.bytes && there.size == text.size && memcmp(there.bytes, text.bytes, text.size) == 0;
  if (ok && there.bytes && !same)
    fprintf(stderr, "note: %s stays: it is not that of %s\n", new, from);
  if (ok && !there.bytes) ok = write_text(new, &text, why);
  free(there.bytes);
  free(text.bytes);
  return ok;
}

bool model_files_copy(const char *from, const char *to, struct failure *why)
{
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!copy(from, to, names[i], why)) return false;
  return true;
}
