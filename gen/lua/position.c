/* position.c: the plan's current line, the limit of its steps, and its errors at that line. */
#include "lua/lua.h"

#include <lua.h>
#include <stdarg.h>
#include <string.h>

/* A frame for each function that runs: its current line in the plan or, for a function of ours or
   Lua's, the line that called it. A tail call removes its caller's frame, with its line, from Lua's
   own stack; here it stays. Lines are tracked only in the plan's functions; most of ours are not
   tracked at all. */
struct frame {
  int line, first; /* first: what is added to a line of the function's file */
  bool of_plan;
};
static struct frame *frame;
static int depth, frame_room;
static const int MOST_STEPS = 10000000;
static int steps; /* lines that the plan ran, and calls: every loop has one */
static bool follows_lines;

int required_number(const char *source)
{
  size_t n = strlen("=" PLAN_NAME);
  if (strncmp(source, "=" PLAN_NAME, n) != 0) return NONE;
  int number = 0;
  for (const char *c = source + n; *c >= '0' && *c <= '9'; c++) number = 10 * number + (*c - '0');
  return number;
}

static void enter_frame(lua_State *L, lua_Debug *about)
{
  frame[depth].of_plan = false;
  /* Most functions that run are C's and need no frame. */
  lua_getinfo(L, "f", about);
  bool c = lua_iscfunction(L, -1);
  lua_pop(L, 1);
  if (c) return;
  lua_getinfo(L, "S", about);
  int file = required_number(about->source);
  frame[depth].of_plan = file != NONE;
  frame[depth].first = file * LINES_OF_FILE;
  follow_lines(L, frame[depth].of_plan);
}

static void count_step(void)
{
  if (++steps > MOST_STEPS)
    plan_fails("the plan ran for more than %d steps: does it end?", MOST_STEPS);
}

static void watch(lua_State *L, lua_Debug *about)
{
  switch (about->event) {
  case LUA_HOOKCALL:
    count_step();
    depth++;
    GROW(frame, depth, frame_room);
    frame[depth].line = frame[depth - 1].line;
    enter_frame(L, about);
    break;
  case LUA_HOOKTAILCALL:
    count_step();
    enter_frame(L, about);
    break;
  case LUA_HOOKRET:
    if (depth > 0) depth--;
    follow_lines(L, frame[depth].of_plan);
    break;
  default:
    count_step();
    if (frame[depth].of_plan) frame[depth].line = frame[depth].first + about->currentline;
  }
  sandbox->line = frame[depth].line;
}

void follow_lines(lua_State *L, bool follow)
{
  if (follow == follows_lines) return;
  follows_lines = follow;
  lua_sethook(L, watch, LUA_MASKCALL | LUA_MASKRET | (follow ? LUA_MASKLINE : 0), 0);
}

void open_frames(void)
{
  GROW(frame, 0, frame_room);
}

void call_unwatched(lua_State *L, int arguments)
{
  int mask = lua_gethookmask(L);
  lua_sethook(L, NULL, 0, 0);
  lua_call(L, arguments, LUA_MULTRET);
  if (mask) lua_sethook(L, watch, mask, 0);
}

/* A node of an exported program that becomes operations now, or NULL: its operator, and Python's
   stack where it was made, or NULL. Lua keeps both texts. */
static const char *node_target, *node_stack;

void set_node(const char *target, const char *stack)
{
  node_target = target;
  node_stack = stack;
}

/* Where the innermost line of Python's stack is: its file, and what is behind its name; or NULL.
   outside: of files that are not PyTorch's own, if there are any. */
static const char *innermost_file(bool outside, const char **end)
{
  static const char begin[] = "File \"", line[] = "\", line ", own[] = "/torch/nn/";
  const char *found = NULL;
  for (const char *at = node_stack; at && (at = strstr(at, begin));) {
    const char *file = at + strlen(begin), *quote = at = strchr(file, '"');
    if (!quote || strncmp(quote, line, strlen(line)) != 0) continue;
    const char *of_torch = strstr(file, own);
    if (found && outside && of_torch && of_torch < quote) continue;
    found = file;
    *end = quote;
  }
  return found;
}

const char *node_words(void)
{
  static const char *target, *stack, *words; /* of the last node */
  if (!node_target) return NULL;
  if (words && target == node_target && stack == node_stack) return words;
  target = node_target;
  stack = node_stack;
  const char *end, *file = innermost_file(true, &end), *name = strstr(target, "aten.");
  name = name ? name + strlen("aten.") : target;
  words = text("%.*s", (int)strcspn(name, name == target ? "" : "."), name);
  if (file)
    words = text("%s (%.*s:%.*s)", words, (int)(end - file), file,
                 (int)strspn(end + 8, "0123456789"), end + 8);
  return words;
}

void plan_fails(const char *format, ...)
{
  char raw[8192], message[4 * sizeof raw], *at = message;
  va_list list;
  va_start(list, format);
  vsnprintf(raw, sizeof raw, format, list);
  va_end(list);
  if (node_target && strlen(raw) < sizeof raw - 1) {
    /* Appends the subject of the error: the operator, and the innermost line of Python's stack. */
    size_t size = sizeof raw;
    const char *end, *file = innermost_file(false, &end);
    size_t used = strlen(raw);
    used += (size_t)snprintf(raw + used, size - used, "; it is %.100s", node_target);
    if (file && used < size) {
      snprintf(raw + used, size - used, " of %.*s:%.*s", (int)(end - file), file,
               (int)strspn(end + 8, "0123456789"), end + 8);
    }
  }
  /* Prints one line of plain letters, whatever the plan's names contain: no terminal commands. */
  for (const char *c = raw; *c; c++) {
    unsigned char byte = (unsigned char)*c;
    bool plain = byte >= 0x20 && byte < 0x7f;
    at += plain ? sprintf(at, "%c", byte) : sprintf(at, "\\x%02x", byte);
  }
  *at = 0;
  plan_error(sandbox->line, "%s", message);
}
