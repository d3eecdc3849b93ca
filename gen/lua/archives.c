/* archives.c: the archives of torch.export that a plan reads.

   An archive is a ZIP with entries that are stored, not compressed: JSON texts that describe the
   program, and the bytes of its tensors. The parent maps the file; the process that reads the plan
   finds the entries in that mapping, so that a hostile archive meets the reader in the sandbox.
   Only the entries that the plan requests are read: the weights are not. */
#include "lua/lua.h"

#include <jansson.h>
#include <lauxlib.h>
#include <lua.h>
#include <string.h>
#include <unzip.h>
#include <formats/zip_entry.h>
#include <zlib.h>

enum { MAX_ARCHIVES = 4, MAX_ENTRY = 1 << 26, MAX_NAME = 512, MAX_DEPTH = 64 };

static struct archive {
  const char *path, *at;
  size_t size, place; /* place: of the next byte that the library reads */
  unzFile zip;        /* only in the sandbox */
  const char *root;   /* the folder of all entries, with its slash */
} known[MAX_ARCHIVES];
static int nknown;

_Noreturn static void no_archive(const struct archive *a, const char *why)
{
  plan_fails(
      "torch_export: %s is not an archive of torch.export: %s. Save it by torch.export.save with "
      "PyTorch 2.8 or later",
      a->path, why);
}

/* The mapping as the file that the library reads. */
static void *open_mapping(void *archive, const void *name, int mode)
{
  (void)name, (void)mode;
  return archive;
}

static uLong read_mapping(void *archive, void *stream, void *to, uLong n)
{
  struct archive *a = stream;
  (void)archive;
  if (n > a->size - a->place) n = a->size - a->place;
  memcpy(to, a->at + a->place, n);
  a->place += n;
  return n;
}

static ZPOS64_T tell_mapping(void *archive, void *stream)
{
  (void)archive;
  return ((struct archive *)stream)->place;
}

static long seek_mapping(void *archive, void *stream, ZPOS64_T offset, int origin)
{
  struct archive *a = stream;
  (void)archive;
  ZPOS64_T from = origin == ZLIB_FILEFUNC_SEEK_SET   ? 0
                  : origin == ZLIB_FILEFUNC_SEEK_CUR ? a->place
                                                     : a->size;
  if (offset > a->size - from) return -1;
  a->place = from + offset;
  return 0;
}

static int no_error(void *archive, void *stream)
{
  (void)archive, (void)stream;
  return 0;
}

static int close_mapping(void *archive, void *stream)
{
  (void)archive, (void)stream;
  return 0;
}

static void open_zip(struct archive *a)
{
  zlib_filefunc64_def file = {.zopen64_file = open_mapping,
                              .zerror_file = no_error,
                              .zread_file = read_mapping,
                              .ztell64_file = tell_mapping,
                              .zseek64_file = seek_mapping,
                              .zclose_file = close_mapping,
                              .opaque = a};
  a->zip = unzOpen2_64(a, &file);
  if (!a->zip) no_archive(a, "it is not a ZIP file");
  /* All entries are in one folder, whose name is that of the file, or "archive". */
  char name[MAX_NAME + 1] = "";
  bool first = unzGoToFirstFile(a->zip) == UNZ_OK &&
               unzGetCurrentFileInfo64(a->zip, NULL, name, MAX_NAME, NULL, 0, NULL, 0) == UNZ_OK;
  size_t length = strcspn(name, "/");
  if (!first || !length || name[length] != '/') no_archive(a, "its first entry is in no folder");
  a->root = text("%.*s/", (int)length, name);
}

static struct archive *archive_at(lua_State *L, int at)
{
  size_t length;
  const char *path = luaL_checklstring(L, at, &length);
  if (!length || strlen(path) != length) plan_fails("torch_export: that is not a path of a file");
  for (int i = 0; i < nknown; i++)
    if (!strcmp(known[i].path, path)) return &known[i];
  struct archive *a = &known[nknown];
  *a = (struct archive){.path = copy_text(path)};
  a->at = requested_text(BY_TORCH_EXPORT, path, &a->size);
  open_zip(a);
  nknown++;
  return a;
}

static bool read_archive_at(void *archive, uint64_t at, void *to, size_t n)
{
  const struct archive *a = archive;
  if (at > a->size || n > a->size - at) return false;
  memcpy(to, a->at + at, n);
  return true;
}

/* Finds an entry; false if there is none of this name. */
static bool find_entry(struct archive *a, const char *name, struct zip_entry *e)
{
  const char *path = text("%s%s", a->root, name);
  if (strlen(path) > MAX_NAME || unzLocateFile(a->zip, path, 1) != UNZ_OK) return false;
  if (!zip_entry_at(read_archive_at, a, a->size, unzGetOffset64(a->zip), e))
    no_archive(a, text("entry %s is damaged, compressed or encrypted", name));
  return true;
}

/* The bytes of an entry, with a zero after them; NULL: there is none of this name. */
static char *entry_bytes(struct archive *a, const char *name, size_t most, size_t *size)
{
  struct zip_entry e;
  if (!find_entry(a, name, &e)) return NULL;
  if (e.size > most)
    no_archive(a, text("entry %s has %llu bytes; at most %zu are read", name,
                       (unsigned long long)e.size, most));
  size_t n = (size_t)e.size;
  char *at = alloc(n + 1);
  memcpy(at, a->at + e.begin, n);
  if (crc32(0, (const Bytef *)at, (unsigned)n) != e.crc)
    no_archive(a, text("entry %s is damaged", name));
  at[n] = 0;
  *size = n;
  uint64_t before = sandbox->archive_hash ? sandbox->archive_hash : HASH_START;
  sandbox->archive_hash = hash_bytes(before, at, *size);
  return at;
}

/* archive_json(path, entry): the entry as Lua has it, or nil. */
static int archive_json(lua_State *L)
{
  struct archive *a = archive_at(L, 1);
  const char *name = luaL_checkstring(L, 2);
  size_t size;
  const char *at = entry_bytes(a, name, MAX_ENTRY, &size);
  if (!at) return 0;
  json_error_t error;
  json_t *json = json_loadb(at, size, JSON_REJECT_DUPLICATES, &error);
  if (!json)
    no_archive(a, text("line %d of entry %s is not JSON: %s", error.line, name, error.text));
  push_json(L, text("torch_export: %s", a->path), json, MAX_DEPTH);
  json_decref(json);
  return 1;
}

/* archive_bytes(path, entry, at most so many): a text of its bytes, or nil. */
static int archive_bytes(lua_State *L)
{
  struct archive *a = archive_at(L, 1);
  size_t size;
  const char *at = entry_bytes(a, luaL_checkstring(L, 2), (size_t)luaL_checkinteger(L, 3), &size);
  if (!at) return 0;
  lua_pushlstring(L, at, size);
  return 1;
}

/* at_node(target or nil, stack or nil): errors name that node. */
static int at_node(lua_State *L)
{
  set_node(luaL_optstring(L, 1, NULL), luaL_optstring(L, 2, NULL));
  return 0;
}

/* weights_of(path): initial values come from this archive, whose program is noted. */
static int weights_of(lua_State *L)
{
  struct archive *a = archive_at(L, 1);
  struct zip_entry e;
  plan_options->weights = a->path;
  if (find_entry(a, ZIP_PROGRAM, &e)) plan_options->exported = text("%08x", (unsigned)e.crc);
  return 0;
}

/* The parts of archives that were read decide the output; the sandbox notes their hash. */
uint64_t hash_archives(uint64_t hash)
{
  if (!sandbox->archive_hash) return hash;
  return hash_bytes(hash, &sandbox->archive_hash, sizeof sandbox->archive_hash);
}

void set_archive_bindings(lua_State *L)
{
  static const luaL_Reg functions[] = {{"archive_json", archive_json},
                                       {"archive_bytes", archive_bytes},
                                       {"at_node", at_node},
                                       {"weights_of", weights_of},
                                       {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
}
