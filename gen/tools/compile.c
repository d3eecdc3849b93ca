/* compile.c: a program of the build: the Lua side of the front end as the functions of this
   machine's Lua, so that tpgen has them without compiling them at every start. A Lua of another
   version takes the texts instead: see lua.c.

   compile OUTPUT DIRECTORY FILE...: writes OUTPUT, a C file with the table `compiled` of
   util/util.h: of the files in DIRECTORY. */
#include "util/util.h"

#include <stdlib.h>
#include <string.h>

#include <lauxlib.h>
#include <lua.h>

static FILE *out;
static int column;

_Noreturn static void give_up(const char *what, const char *why)
{
  fprintf(stderr, "compile: %s: %s\n", what, why);
  exit(1);
}

static int put_bytes(lua_State *L, const void *bytes, size_t n, void *to)
{
  (void)L, (void)to;
  for (size_t i = 0; i < n; i++) {
    unsigned char byte = ((const unsigned char *)bytes)[i];
    fprintf(out, "%s0x%02x,", column++ % 16 ? "" : "\n  ", byte);
  }
  return 0;
}

static void compile(lua_State *L, int number, const char *directory, const char *name)
{
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  FILE *file = fopen(path, "rb");
  static char source[1 << 20];
  size_t n = file ? fread(source, 1, sizeof source, file) : 0;
  if (!file || n == sizeof source || fclose(file)) give_up(path, "cannot be read");
  if (luaL_loadbufferx(L, source, n, "=" OWN_NAME, "t")) give_up(path, lua_tostring(L, -1));
  fprintf(out, "/* %s */\nstatic const unsigned char file_%d[] = {", name, number);
  column = 0;
  lua_dump(L, put_bytes, NULL, 0);
  fprintf(out, "};\n\n");
  lua_pop(L, 1);
}

int main(int argc, char **argv)
{
  lua_State *L = luaL_newstate();
  if (argc < 4 || !L) give_up("arguments", "OUTPUT DIRECTORY FILE...");
  out = fopen(argv[1], "w");
  if (!out) give_up(argv[1], "cannot be written");
  fprintf(out, "/* Made by gen/tools/compile.c from gen/lua/prelude/ and gen/lua/torch_export/. "
               "*/\n#include \"util/util.h\"\n\n");
  for (int i = 3; i < argc; i++) compile(L, i, argv[2], argv[i]);
  fprintf(out, "const char compiled_by[] = {");
  column = 0;
  put_bytes(L, lua_ident, strlen(lua_ident) + 1, NULL);
  fprintf(out, "};\nconst struct embedded compiled[] = {\n");
  for (int i = 3; i < argc; i++)
    fprintf(out, "  {\"%s\", file_%d, sizeof file_%d},\n", argv[i], i, i);
  fprintf(out, "  {NULL, NULL, 0},\n};\n");
  if (fclose(out)) give_up(argv[1], "cannot be written");
  lua_close(L);
  return 0;
}
