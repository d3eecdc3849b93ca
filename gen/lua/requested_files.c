/* requested_files.c: the files that a plan reads while it runs.

   The process that reads the plan can open no file. If the plan requests a file that was not read
   yet, the process stores its path and ends. The parent reads the file, if the plan may see it, and
   the plan starts again with the file at hand. read_json may see the files that the command line
   names, as in -D config=FILE, and those in or below the plan's directory, and so may torch_export
   and pipeline; require the latter. A device's file may also be one that the file of a cluster
   names, if the command line names that.

   Files that the text requires by a literal name are read ahead, in the order of the text: mostly
   the plan then requests them in that order and need not start again. */
#include "lua/lua.h"

#include <string.h>
#include <unistd.h>

enum { MAX_JSON_FILES = 8, MAX_ARCHIVES = 4, MAX_SCHEDULES = 1, MAX_DEVICES = 1 };
enum { MAX_CLUSTERS = 1 };
enum {
  MAX_FILES =
      MAX_JSON_FILES + MAX_ARCHIVES + MAX_SCHEDULES + MAX_DEVICES + MAX_CLUSTERS + MOST_PLAN_FILES
};
enum { MAX_JSON = 1 << 18, MAX_TEXT = 1 << 20, MAX_DEVICE = 1 << 22 };

static const char *const asker[] = {
    [BY_READ_JSON] = "read_json",         [BY_REQUIRE] = "require",
    [BY_TORCH_EXPORT] = "torch_export",   [BY_PIPELINE] = "pipeline",
    [BY_DEVICE] = "device_mesh's device", [BY_CLUSTER] = "device_mesh's cluster"};
/* In the order in which the plan requests them. The first sandbox->requested of them it did. */
static struct known {
  enum file_reader by;
  const char *path, *text;
  size_t length;
} known[MAX_FILES];
static int nknown;

static const char *(*path_of_machine)(void);

void set_reader_of_machine(const char *(*path)(void))
{
  path_of_machine = path;
}

/* ----------------------------------------------------------------------------------- the parent */

static bool is_this_machine(const struct known *k)
{
  return k->by == BY_DEVICE && !strcmp(k->path, THIS_MACHINE) && path_of_machine;
}

/* Whether a definition of the command line is exactly this path. */
static bool is_defined(const char *path)
{
  for (int i = 0; i < options.ndefinition; i++)
    if (!strcmp(options.definition[i].value, path)) return true;
  return options.cluster && !strcmp(options.cluster, path);
}

/* Whether it is the device of the cluster's file that the command line names. Its path begins
   there, as in parallel.lua. */
static bool is_of_cluster(const char *path)
{
  bool found = false;
  for (int i = 0; i < nknown; i++) {
    const struct known *k = &known[i];
    if (k->by != BY_CLUSTER || !is_defined(k->path)) continue;
    json_t *json = json_loadb(k->text, k->length, JSON_REJECT_DUPLICATES, NULL);
    const char *device = json_string_value(json_object_get(json, "device"));
    const int folder = device && *device == '/' ? 0 : folder_length(k->path);
    found |= device && !strcmp(path, text("%.*s%s", folder, k->path, device));
    json_decref(json);
  }
  return found;
}

/* Reads the file; returns why it cannot, or NULL. */
static const char *read_known(struct known *k)
{
  bool is_small = k->by == BY_READ_JSON || k->by == BY_CLUSTER;
  size_t most = is_small ? MAX_JSON : k->by == BY_DEVICE ? MAX_DEVICE : MAX_TEXT;
  const char *at = k->path, *why = NULL;
  const bool is_named = k->by != BY_REQUIRE && is_defined(at);
  if (is_this_machine(k)) {
    at = path_of_machine();
  } else if (!is_named && !(k->by == BY_DEVICE && is_of_cluster(at))) {
    const char *directory = text("%.*s", folder_length(options.plan), options.plan);
    at = text("%s%s", *at == '/' ? "" : directory, at);
    if (access(at, F_OK) == 0 && !is_below_plan(directory, at))
      return k->by == BY_REQUIRE ? "a plan requires files beside it or below its folder"
                                 : "a plan reads files beside it, or that -D names";
  }
  k->text = k->by == BY_TORCH_EXPORT ? map_file(at, &k->length, &why)
                                     : read_file(at, most, &k->length, &why);
  note_file_read(at);
  bool is_text = k->by == BY_REQUIRE || k->by == BY_PIPELINE;
  if (!why && is_text && (memchr(k->text, 0, k->length) || memchr(k->text, '\x1b', k->length)))
    why = "it is not text";
  return why;
}

static int index_of_request(enum file_reader by, const char *path)
{
  int i = 0;
  while (i < nknown && (known[i].by != by || strcmp(known[i].path, path))) i++;
  return i;
}

/* Puts the file at this place. */
static void put_known(int place, struct known k)
{
  nknown += nknown < MAX_FILES;
  memmove(&known[place + 1], &known[place], (size_t)(nknown - 1 - place) * sizeof k);
  known[place] = k;
}

static void read_ahead(const char *plan)
{
  static const char word[] = "require";
  for (const char *c = plan; (c = strstr(c, word)) && nknown < MOST_PLAN_FILES;) {
    c += strlen(word);
    const char *quote = c + strspn(c, " (");
    const char *end = *quote == '"' || *quote == '\'' ? strchr(quote + 1, *quote) : NULL;
    const char *path = end ? path_of_name(quote + 1, (size_t)(end - quote - 1)) : NULL;
    struct known k = {.by = BY_REQUIRE, .path = path};
    if (!path || index_of_request(BY_REQUIRE, path) < nknown || read_known(&k)) continue;
    put_known(nknown, k);
    read_ahead(k.text);
  }
}

/* The plan's files are numbered in the order of the requests. */
static void number_plan_files(void)
{
  forget_plan_files();
  for (int i = 0; i < nknown; i++)
    if (known[i].by == BY_REQUIRE) add_plan_file(known[i].path);
}

void open_requested_files(const char *plan)
{
  nknown = 0;
  read_ahead(plan);
  number_plan_files();
}

/* " (-D cluster)": the option that names the file; "" if the plan does. */
static const char *option_of(const struct known *k)
{
  if (k->by == BY_CLUSTER && options.cluster && !strcmp(options.cluster, k->path))
    return " (--cluster)";
  for (int i = 0; i < options.ndefinition; i++)
    if (!strcmp(options.definition[i].value, k->path))
      return text(" (-D %s)", printable(options.definition[i].name));
  return "";
}

/* What may stand in the place of a file that cannot be read. */
static const char *advice_about(enum file_reader by)
{
  if (by == BY_CLUSTER)
    return text("; say the path of a file, .json, or a preset: %s, dgx-h100:16 of 16 nodes",
                cluster_names());
  if (by == BY_DEVICE)
    return text("; say the path of the device.json that DIR/run.sh leaves after tpgen --calibrate "
                "-o DIR, or a preset: %s",
                device_names());
  return "";
}

bool read_requested_file(void)
{
  int requested = sandbox->requested;
  if (requested < 0 || requested > nknown) bug("lua", "a count of files");
  if (!*sandbox->missing) {
    nknown = requested;
    number_plan_files();
    return false;
  }
  struct known k = {.by = sandbox->missing_by, .path = copy_text(sandbox->missing)};
  const char *why = read_known(&k);
  if (why)
    plan_error(sandbox->line, "%s%s: cannot read %s: %s%s", asker[k.by], option_of(&k),
               printable(k.path), why, advice_about(k.by));
  int ahead = index_of_request(k.by, k.path);
  if (ahead < nknown) {
    memmove(&known[ahead], &known[ahead + 1], (size_t)(nknown - 1 - ahead) * sizeof k);
    nknown--;
  }
  put_known(requested, k);
  number_plan_files();
  return true;
}

int requested_files(void)
{
  return nknown;
}

struct requested_file requested_file(int i)
{
  const struct known *k = &known[i];
  return (struct requested_file){.by = k->by,
                                 .path = k->path,
                                 .text = k->text,
                                 .length = k->length,
                                 .is_defined = k->by != BY_REQUIRE && is_defined(k->path),
                                 .is_machine = is_this_machine(k)};
}

uint64_t hash_files(uint64_t hash)
{
  for (int i = 0; i < nknown; i++) {
    hash = hash_bytes(hash, known[i].path, strlen(known[i].path) + 1);
    if (known[i].by == BY_TORCH_EXPORT) continue; /* of what is read of it: hash_archives */
    hash = hash_bytes(hash, known[i].text, known[i].length);
  }
  return hash;
}

/* --------------------------------------------------------------------------- inside the sandbox */

const char *requested_text(enum file_reader by, const char *path, size_t *length)
{
  int i = index_of_request(by, path);
  if (i >= sandbox->requested) {
    int most = by == BY_REQUIRE        ? MOST_PLAN_FILES
               : by == BY_TORCH_EXPORT ? MAX_ARCHIVES
               : by == BY_PIPELINE     ? MAX_SCHEDULES
               : by == BY_DEVICE       ? MAX_DEVICES
               : by == BY_CLUSTER      ? MAX_CLUSTERS
                                       : MAX_JSON_FILES;
    int n = 0;
    for (int k = 0; k < sandbox->requested; k++) n += known[k].by == by;
    if (n == most) plan_fails("%s: a plan reads at most %d files", asker[by], most);
    if (i > sandbox->requested || i == nknown) {
      if (strlen(path) >= sizeof sandbox->missing)
        plan_fails("%s: a path of %zu letters", asker[by], strlen(path));
      sandbox->missing_by = by;
      strcpy(sandbox->missing, path);
      _exit(0);
    }
    sandbox->requested++;
  }
  *length = known[i].length;
  return known[i].text;
}
