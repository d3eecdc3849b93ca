/* line_breaks.c: breaks the lines of generated C where they are too long, as a person would, and
   removes the braces around a loop's only statement. */
#include "naming/naming.h"

#include <ctype.h>
#include <string.h>

/* Where the next "; a = b" or "; a += b" of a list of assignments begins, or the end. */
static const char *next_assignment(const char *s)
{
  for (const char *at = s; (at = strstr(at, "; ")); at++) {
    const char *sign = strstr(at, "= "), *next = strstr(at + 1, "; ");
    if (sign && (!next || sign < next)) return at;
  }
  return s + strlen(s);
}

/* A line of a comment; a continuation is indented further. */
static void put_comment(struct buffer *b, const char *s, int length, int indent)
{
  char *line = text("%*s// %.*s", indent, "", length, s);
  for (char *c = line; (c = strstr(c, " bytes")); c++)
    if (isdigit((unsigned char)c[-1])) *c = KEPT_BLANK;
  put(b, "%s\n", wrapped(line, " ", text("%*s//     ", indent, "")));
}

/* A comment as lines. If one line is too short, each assignment has its own, and the text after
   them is in columns with four blanks between, on as few lines as possible. */
char *comment_lines(const char *s, int indent)
{
  enum { COLUMNS = 100, GAP = 4 };
  struct buffer b = {0};
  put_text(&b, "", 0);
  int room = COLUMNS - indent - 3;
  const char *fields = strstr(s, "    ");
  size_t all = strlen(s), length = fields ? (size_t)(fields - s) : all;
  const char *expression = text("%.*s", (int)length, s);
  for (const char *end; all > (size_t)room && *(end = next_assignment(expression));) {
    put_comment(&b, expression, (int)(end - expression), indent);
    expression = end + 2;
  }
  bool alone = b.length || strlen(expression) > (size_t)room;
  const char *line = expression, *rest = fields;
  while (rest) {
    const char *field = rest + GAP;
    rest = strstr(field, "    ");
    const char *word = text("%.*s", (int)(rest ? (size_t)(rest - field) : strlen(field)), field);
    const char *longer = text("%s    %s", line, word);
    bool breaks = alone || strlen(longer) > (size_t)room;
    if (breaks) put_comment(&b, line, (int)strlen(line), indent);
    line = breaks ? word : longer;
    alone = false;
  }
  put_comment(&b, line, (int)strlen(line), indent);
  return b.text;
}

enum { COLUMNS = 100 };

/* ----------------------------------------------------------------------------------- statements */

static bool is_too_long(const char *lines)
{
  for (; *lines; lines += strcspn(lines, "\n"), lines += *lines == '\n')
    if (strcspn(lines, "\n") > COLUMNS) return true;
  return false;
}

/* The place of a mark outside of all brackets, or NULL. */
static const char *outside_brackets(const char *s, const char *mark)
{
  int depth = 0;
  for (; *s; s++) {
    depth += (*s == '(' || *s == '[') - (*s == ')' || *s == ']');
    if (!depth && !strncmp(s, mark, strlen(mark))) return s;
  }
  return NULL;
}

/* An arm of a choice, which begins in this column: broken at a sum into two lines if one is too
   short. NULL if two are. */
static char *arm_lines(const char *arm, int length, int column)
{
  char *all = text("%.*s", length, arm);
  if (column + length <= COLUMNS) return all;
  const char *at = NULL;
  for (const char *c = all; (c = outside_brackets(c, " ")) && column + (int)(c - all) <= COLUMNS;
       c++)
    if (c > all + 1 && (c[-1] == '+' || c[-1] == '-') && c[-2] == ' ') at = c;
  if (!at || column + 4 + (int)strlen(at + 1) > COLUMNS) return NULL;
  return text("%.*s\n%*s%s", (int)(at - all), all, column + 4, "", at + 1);
}

/* "x = is_first ? a" with ": b" below the sign; or the whole choice on lines of its own. NULL if
   there is none, or a line would be too long. */
static char *choice_lines(const char *line, int indent)
{
  const char *becomes = outside_brackets(line, " = "), *yes = outside_brackets(line, " ? ");
  const char *no = yes ? outside_brackets(yes, " : ") : NULL;
  if (!no || !becomes) return NULL;
  for (int below = 0; below < 2; below++) {
    const char *from = below ? becomes + strlen(" = ") : line;
    int column = (int)(yes + 1 - from) + (below ? indent + 4 : 0);
    bool split = below != 0; /* an arm is broken only if the choice has its own lines */
    char *one = arm_lines(yes + 3, (int)(no - yes) - 3, column + 2);
    char *other = arm_lines(no + 3, (int)strlen(no + 3), column + 2);
    if (!one || !other || (!split && (strchr(one, '\n') || strchr(other, '\n')))) continue;
    const char *lead = below ? text("%.*s\n%*s", (int)(from - line) - 1, line, indent + 4, "") : "";
    return text("%s%.*s ? %s\n%*s: %s", lead, (int)(yes - from), from, one, column, "", other);
  }
  return NULL;
}

/* Outside of brackets, except those of a rounding, wherever a line is full: after a sign, after
   one of `signs` if they are given. */
static char *filled_lines(const char *statement, int indent, const char *signs)
{
  char *line = copy_text(statement);
  int depth = strstr(line, " = float_to_bf16(") ? -1 : 0;
  memset(line, KEPT_BLANK, (size_t)indent);
  for (char *c = line + indent; *c; c++) {
    depth += (*c == '(' || *c == '[') - (*c == ')' || *c == ']');
    bool at_sign = (signs && !strchr(signs, c[-1])) || (strchr("+-*/", c[1]) && c[2] == ' ');
    if (*c == ' ' && (depth > 0 || at_sign)) *c = KEPT_BLANK;
  }
  return wrapped(line, " ", text("%*s", indent + 4, ""));
}

void put_statement(struct buffer *b, int indent, const char *statement)
{
  char *line = text("%*s%s", indent, "", statement), *lines = line;
  if (strlen(line) > COLUMNS) lines = choice_lines(line, indent);
  if (!lines) {
    /* The same after the sign of an assignment, if that is enough. */
    const char *becomes = outside_brackets(line, " = ");
    char *lines_of_assignment =
        (!becomes || strlen(becomes + 3) + (size_t)indent + 4 > COLUMNS)
            ? NULL
            : text("%.*s\n%*s%s", (int)(becomes + 2 - line), line, indent + 4, "", becomes + 3);
    lines = lines_of_assignment;
  }
  if (!lines) lines = filled_lines(line, indent, "=+-");
  if (is_too_long(lines)) lines = filled_lines(line, indent, NULL);
  if (is_too_long(lines)) lines = wrapped(line, ", ", text("%*s", indent + 4, ""));
  put(b, "%s\n", lines);
}

/* ---------------------------------------------------------------------------------- whole texts */

/* A line of C, broken after commas; else after the first bracket; else as a statement. */
static const char *wrapped_line(const char *line, int indent)
{
  const char *lead = text("%*s", indent + 4, ""), *lines = wrapped(line, ", ", lead);
  if (!is_too_long(lines)) return lines;
  int head = (int)strcspn(line, "(") + 1;
  if (!indent)
    return text("%.*s\n%s", head, line, wrapped(text("%s%s", lead, line + head), ", ", lead));
  struct buffer b = {0};
  put_statement(&b, indent, line + indent);
  return text("%.*s", (int)b.length - 1, b.text);
}

char *wrapped_lines(const char *s, bool ours)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  while (*s) {
    size_t length = strcspn(s, "\n"), indent = strspn(s, " ");
    const char *line = text("%.*s", (int)length, s);
    bool code = *line && !strchr("#/{}", line[indent]) && !strchr(line, '"') && !strstr(line, "//");
    put(&b, "%s", code && (ours || !indent) ? wrapped_line(line, (int)indent) : line);
    s += length;
    if (*s) put_text(&b, s++, 1);
  }
  return b.text;
}

/* The end of the statement that begins on this line: the line after it, on which its brackets
   are closed and which does not end in the sign of an assignment. */
static const char *statement_end(const char *line)
{
  int open = 0;
  for (bool more = true; more && *line;) {
    const char *end = line + strcspn(line, "\n");
    for (const char *c = line; c < end; c++) open += (*c == '(') - (*c == ')');
    more = open > 0 || (end > line && end[-1] == '=');
    line = end + (*end == '\n');
  }
  return line;
}

static char *join_statements(const char *file)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (const char *line = file, *end; *line; line = end) {
    char first = line[strspn(line, " ")];
    end = first == '/' || first == '#' ? next_line(line) : statement_end(line);
    const char *all = text("%.*s", (int)(end - line), line);
    bool joins = strchr(all, '$') && !strstr(all, "//");
    for (const char *c = all, *next; *c; c = next) {
      next = joins ? next_line(c) : c + strlen(c);
      const char *part = c == all ? c : c + strspn(c, " ");
      bool goes_on = *next && joins;
      put(&b, "%.*s", (int)(next - part) - goes_on, part);
      if (goes_on && next[-2] != '(') put(&b, " ");
    }
  }
  return b.text;
}

/* Kernels of several classes of ranks come from the same text: joined text is cached. */
const char *joined_statements(const char *file)
{
  static const struct graph *of;
  static struct joined {
    const char *file, *text;
  } * known;
  static int n, room;
  if (of != graph) n = room = 0;
  of = graph;
  for (int i = 0; i < n; i++)
    if (known[i].file == file) return known[i].text;
  GROW(known, n, room);
  known[n++] = (struct joined){file, join_statements(file)};
  return known[n - 1].text;
}

/* ----------------------------------------------------------------------- loops of one statement */

/* Whether this line and two more are "for (...) {", a statement, "}". */
static bool holds_one(const char *line)
{
  const char *inner = next_line(line), *last = next_line(inner);
  size_t indent = strspn(line, " "), within = strspn(inner, " ");
  bool opens = !strncmp(line + indent, "for (", 5) || !strncmp(line + indent, "if (", 4);
  bool closes = strspn(last, " ") == indent && !strncmp(last + indent, "}\n", 2);
  return opens && inner[-2] == '{' && within == indent + 2 && last[-2] == ';' && closes;
}

char *without_braces(const char *body)
{
  for (bool again = true; again;) {
    struct buffer b = {0};
    put_text(&b, "", 0);
    again = false;
    for (const char *line = body; *line;) {
      const char *inner = next_line(line), *last = next_line(inner);
      size_t head = (size_t)(inner - line) - strlen(" {\n"), indent = strspn(line, " ");
      if (!holds_one(line)) {
        put_text(&b, line, (size_t)(inner - line));
        line = inner;
        continue;
      }
      const char *statement = inner + indent + 2;
      bool joins = head + (size_t)(last - statement) <= COLUMNS && strncmp(statement, "for (", 5);
      if (!joins) statement = inner;
      put(&b, "%.*s%s%.*s", (int)head, line, joins ? " " : "\n", (int)(last - statement),
          statement);
      again = true;
      line = next_line(last);
    }
    body = b.text;
  }
  return copy_text(body);
}
