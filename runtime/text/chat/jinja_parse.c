// SPDX-License-Identifier: MIT
// Jinja: from a template's text to its tree.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "text/chat/jinja_tree.h"

enum { MOST_DEPTH = 200 };

struct parser {
  struct work *w;
  const char *text, *at;
  bool takes_blanks, takes_line; // at the begin of the next text
  // The token at hand, within a tag.
  enum token { T_END, T_NAME, T_WHOLE, T_REAL, T_TEXT, T_SIGN } token;
  const char *word; // T_NAME, T_SIGN, T_TEXT
  size_t count;
  long long whole;
  double real;
  int braces;                                  // open ones, within a tag
  bool uses_caller, uses_varargs, uses_kwargs; // what the macro at hand names
  const char **blocks;                         // names of those that were
  size_t nblocks;
};

static void count_lines(struct parser *p, const char *from, const char *to)
{
  for (; from < to; from++) p->w->line += *from == '\n';
}

static struct node *new_node(struct parser *p, enum node_kind kind)
{
  struct node *n = work_alloc(p->w, sizeof *n);
  n->kind = kind;
  n->line = p->w->line;
  return n;
}

static void add_node(struct parser *p, struct node *to, struct node *n)
{
  if (to->n == to->room) {
    const size_t room = 2 * to->room + 4;
    struct node **list = work_alloc(p->w, room * sizeof *list);
    if (to->n) memcpy(list, to->list, to->n * sizeof *list);
    to->list = list;
    to->room = room;
  }
  to->list[to->n++] = n;
}

static void add_named(struct parser *p, struct node *to, const char *name, struct node *value)
{
  struct node *pair = new_node(p, N_PAIR);
  pair->name = name;
  pair->a = value;
  if (to->nnamed == to->named_room) {
    const size_t room = 2 * to->named_room + 4;
    struct node **list = work_alloc(p->w, room * sizeof *list);
    if (to->nnamed) memcpy(list, to->named, to->nnamed * sizeof *list);
    to->named = list;
    to->named_room = room;
  }
  to->named[to->nnamed++] = pair;
}

// ---- tokens ------------------------------------------------------------------------------------

static bool is_letter(char c)
{
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

static bool is_digit(char c)
{
  return c >= '0' && c <= '9';
}

static void add_escaped(struct parser *p, struct out *o, uint32_t number)
{
  struct bytes code = {0};
  add_code(&code, number);
  const bool failed = code.failed;
  if (!failed) out_add(p->w, o, code.at, code.count);
  free_bytes(&code);
  if (failed) work_fails(p->w, "out of memory");
}

static void read_text(struct parser *p)
{
  const char quote = *p->at++;
  struct out o = {0};
  out_add(p->w, &o, "", 0);
  while (*p->at && *p->at != quote) {
    char c = *p->at++;
    if (c == '\\' && *p->at) {
      c = *p->at++;
      static const char from[] = "ntrbfav", to[] = "\n\t\r\b\f\a\v";
      const char *known = strchr(from, c);
      if (c == 'x' || c == 'u' || c == 'U') {
        const int digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        char number[9] = "";
        for (int i = 0; i < digits && p->at[i]; i++) number[i] = p->at[i];
        char *end;
        const unsigned long value = strtoul(number, &end, 16);
        if (strlen(number) != (size_t)digits || *end || value > 0x10ffff)
          work_fails(p->w, "a text has a wrong escape");
        add_escaped(p, &o, (uint32_t)value);
        p->at += digits;
        continue;
      }
      if (c >= '0' && c <= '7') { // up to three octal digits
        int number = c - '0';
        for (int i = 0; i < 2 && *p->at >= '0' && *p->at <= '7'; i++)
          number = 8 * number + *p->at++ - '0';
        add_escaped(p, &o, (uint32_t)number);
        continue;
      }
      if (c == '\n') {
        p->w->line++;
        continue;
      }
      if (!known && c != '\\' && c != '\'' && c != '"') out_add(p->w, &o, "\\", 1);
      if (known) c = to[known - from];
    } else if (c == '\n') {
      p->w->line++;
    }
    out_add(p->w, &o, &c, 1);
  }
  if (!*p->at) work_fails(p->w, "a text does not end");
  p->at++;
  p->token = T_TEXT;
  p->word = o.at;
  p->count = o.count;
}

static void read_number(struct parser *p)
{
  const char kind = p->at[0] == '0' ? (char)(p->at[1] | 0x20) : 0;
  const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
  if (base) {
    char *end;
    errno = 0;
    p->whole = strtoll(p->at + 2, &end, base);
    if (end == p->at + 2 || errno || is_letter(*end) || is_digit(*end))
      work_fails(p->w, "a number is wrong, or too large");
    p->at = end;
    p->token = T_WHOLE;
    return;
  }
  char digits[64];
  size_t n = 0;
  bool is_real = false;
  const char *at = p->at;
  for (; is_digit(*at) || *at == '_' || (*at == '.' && is_digit(at[1]) && !is_real) ||
         ((*at == 'e' || *at == 'E') && n &&
          (is_digit(at[1]) || ((at[1] == '-' || at[1] == '+') && is_digit(at[2]))));
       at++) {
    if (*at == '_') continue;
    is_real |= *at == '.' || *at == 'e' || *at == 'E';
    if (n + 2 < sizeof digits) digits[n++] = *at;
    if ((*at == 'e' || *at == 'E') && !is_digit(at[1]) && n + 2 < sizeof digits)
      digits[n++] = *++at;
  }
  digits[n] = 0;
  p->at = at;
  p->token = is_real ? T_REAL : T_WHOLE;
  if (is_real)
    p->real = strtod(digits, NULL);
  else {
    errno = 0;
    p->whole = strtoll(digits, NULL, 10);
    if (errno || n + 2 >= sizeof digits) work_fails(p->w, "a number is too large");
  }
}

static void next_token(struct parser *p)
{
  while (*p->at == ' ' || *p->at == '\t' || *p->at == '\r' || *p->at == '\n')
    p->w->line += *p->at++ == '\n';
  work_step(p->w);
  const char *at = p->at;
  if (!*at) work_fails(p->w, "a tag does not end");
  const bool minus =
      (*at == '-' || *at == '+') && at[1] && at[2] == '}' && (at[1] == '}' || at[1] == '%');
  if (minus || (at[0] == '}' && at[1] == '}' && !p->braces) || (at[0] == '%' && at[1] == '}')) {
    p->token = T_END;
    return;
  }
  if (is_letter(*at)) {
    while (is_letter(*at) || is_digit(*at)) at++;
    p->token = T_NAME;
    p->word = work_copy(p->w, p->at, (size_t)(at - p->at));
    p->at = at;
  } else if (is_digit(*at)) {
    read_number(p);
  } else if (*at == '"' || *at == '\'') {
    read_text(p);
  } else {
    static const char *const two[] = {"==", "!=", "<=", ">=", "//", "**", NULL};
    size_t n = 1;
    for (int i = 0; two[i]; i++)
      if (at[0] == two[i][0] && at[1] == two[i][1]) n = 2;
    if (!strchr("+-*/%~<>=!()[]{}.,:|", *at))
      work_fails(p->w, "the character '%c' is not known here", *at);
    p->braces += *at == '{' ? 1 : *at == '}' ? -1 : 0;
    p->token = T_SIGN;
    p->word = work_copy(p->w, at, n);
    p->at += n;
  }
}

static bool is_sign(const struct parser *p, const char *sign)
{
  return p->token == T_SIGN && !strcmp(p->word, sign);
}

static bool is_word(const struct parser *p, const char *word)
{
  return p->token == T_NAME && !strcmp(p->word, word);
}

static bool takes_sign(struct parser *p, const char *sign)
{
  if (!is_sign(p, sign)) return false;
  next_token(p);
  return true;
}

static bool takes_word(struct parser *p, const char *word)
{
  if (!is_word(p, word)) return false;
  next_token(p);
  return true;
}

static void needs_sign(struct parser *p, const char *sign)
{
  if (!takes_sign(p, sign)) work_fails(p->w, "'%s' is missing", sign);
}

static const char *needs_name(struct parser *p)
{
  const char *name = p->word;
  if (p->token != T_NAME) work_fails(p->w, "a name is missing");
  next_token(p);
  return name;
}

// ---- expressions -------------------------------------------------------------------------------

static struct node *expression(struct parser *p);

static struct node *constant(struct parser *p, struct value *v)
{
  struct node *n = new_node(p, N_CONSTANT);
  n->value = v;
  return n;
}

static void arguments(struct parser *p, struct node *call)
{
  while (!is_sign(p, ")")) {
    if (is_sign(p, "*") || is_sign(p, "**")) {
      struct node *spread = new_node(p, N_SPREAD);
      spread->flag = is_sign(p, "**");
      next_token(p);
      spread->a = expression(p);
      add_node(p, call, spread);
      if (!takes_sign(p, ",")) break;
      continue;
    }
    const char *name = p->token == T_NAME ? p->word : NULL;
    const int line = p->w->line;
    if (name) {
      const struct parser saved = *p;
      next_token(p);
      if (takes_sign(p, "=")) {
        add_named(p, call, name, expression(p));
        if (!takes_sign(p, ",")) break;
        continue;
      }
      p->at = saved.at;
      p->token = saved.token;
      p->word = saved.word;
      p->braces = saved.braces;
      p->w->line = line;
    }
    add_node(p, call, expression(p));
    if (!takes_sign(p, ",")) break;
  }
  needs_sign(p, ")");
}

static struct node *primary(struct parser *p)
{
  struct node *n;
  if (p->token == T_TEXT) {
    struct out o = {0};
    while (p->token == T_TEXT) { // texts side by side are one
      out_add(p->w, &o, p->word, p->count);
      next_token(p);
    }
    return constant(p, text_value(p->w, o.at, o.count));
  }
  if (p->token == T_WHOLE) {
    n = constant(p, whole_value(p->w, p->whole));
    next_token(p);
    return n;
  }
  if (p->token == T_REAL) {
    n = constant(p, real_value(p->w, p->real));
    next_token(p);
    return n;
  }
  if (p->token == T_NAME) {
    const char *name = needs_name(p);
    if (!strcmp(name, "true") || !strcmp(name, "True")) return constant(p, flag_value(p->w, true));
    if (!strcmp(name, "false") || !strcmp(name, "False"))
      return constant(p, flag_value(p->w, false));
    if (!strcmp(name, "none") || !strcmp(name, "None"))
      return constant(p, value_of(p->w, NONE_VALUE));
    n = new_node(p, N_NAME);
    n->name = name;
    p->uses_caller |= !strcmp(name, "caller");
    p->uses_varargs |= !strcmp(name, "varargs");
    p->uses_kwargs |= !strcmp(name, "kwargs");
    return n;
  }
  if (takes_sign(p, "(")) {
    if (takes_sign(p, ")")) return new_node(p, N_TUPLE);
    n = expression(p);
    if (is_sign(p, ",")) {
      struct node *tuple = new_node(p, N_TUPLE);
      add_node(p, tuple, n);
      while (takes_sign(p, ",") && !is_sign(p, ")")) add_node(p, tuple, expression(p));
      n = tuple;
    }
    needs_sign(p, ")");
    return n;
  }
  if (takes_sign(p, "[")) {
    n = new_node(p, N_LIST);
    while (!is_sign(p, "]")) {
      add_node(p, n, expression(p));
      if (!takes_sign(p, ",")) break;
    }
    needs_sign(p, "]");
    return n;
  }
  if (takes_sign(p, "{")) {
    n = new_node(p, N_MAP);
    while (!is_sign(p, "}")) {
      struct node *pair = new_node(p, N_PAIR);
      pair->a = expression(p);
      needs_sign(p, ":");
      pair->b = expression(p);
      add_node(p, n, pair);
      if (!takes_sign(p, ",")) break;
    }
    needs_sign(p, "}");
    return n;
  }
  work_fails(p->w, "an expression is missing%s%s", p->token == T_SIGN ? " at " : "",
             p->token == T_SIGN ? p->word : "");
}

// [i], [a:b:c]
static struct node *subscript(struct parser *p, struct node *of)
{
  struct node *first = NULL;
  if (!is_sign(p, ":")) first = expression(p);
  if (!is_sign(p, ":")) {
    struct node *item = new_node(p, N_ITEM);
    item->a = of;
    item->b = first;
    needs_sign(p, "]");
    return item;
  }
  struct node *slice = new_node(p, N_SLICE), *bound[3] = {first, NULL, NULL};
  for (int i = 1; i < 3 && takes_sign(p, ":"); i++)
    if (!is_sign(p, ":") && !is_sign(p, "]")) bound[i] = expression(p);
  needs_sign(p, "]");
  slice->a = of;
  for (int i = 0; i < 3; i++) add_node(p, slice, bound[i]);
  return slice;
}

static struct node *filtered(struct parser *p, struct node *n)
{
  while (takes_sign(p, "|")) {
    struct node *filter = new_node(p, N_FILTER);
    filter->name = needs_name(p);
    filter->a = n;
    if (takes_sign(p, "(")) arguments(p, filter);
    n = filter;
  }
  return n;
}

static struct node *postfix(struct parser *p)
{
  struct node *n = primary(p);
  for (;;) {
    if (takes_sign(p, ".")) {
      struct node *member = new_node(p, N_MEMBER);
      member->a = n;
      if (p->token == T_WHOLE) { // x.0
        member->kind = N_ITEM;
        member->b = constant(p, whole_value(p->w, p->whole));
        next_token(p);
      } else {
        member->name = needs_name(p);
      }
      n = member;
    } else if (takes_sign(p, "[")) {
      n = subscript(p, n);
    } else if (takes_sign(p, "(")) {
      struct node *call = new_node(p, N_CALL);
      call->a = n;
      arguments(p, call);
      n = call;
    } else {
      return n;
    }
  }
}

static struct node *tested(struct parser *p, struct node *n)
{
  while (takes_word(p, "is")) {
    struct node *test = new_node(p, N_TEST);
    test->a = n;
    test->flag = takes_word(p, "not");
    test->name = needs_name(p);
    if (takes_sign(p, "(")) {
      arguments(p, test);
    } else if (p->token == T_TEXT || p->token == T_WHOLE || p->token == T_REAL || is_sign(p, "[") ||
               is_sign(p, "{") ||
               (p->token == T_NAME && !is_word(p, "and") && !is_word(p, "or") &&
                !is_word(p, "else") && !is_word(p, "if") && !is_word(p, "is") &&
                !is_word(p, "in") && !is_word(p, "not"))) {
      add_node(p, test, postfix(p));
    }
    n = test;
  }
  return n;
}

static struct node *binary(struct parser *p, const char *sign, struct node *a, struct node *b)
{
  struct node *n = new_node(p, N_BINARY);
  n->name = sign;
  n->a = a;
  n->b = b;
  return n;
}

static struct node *with_sign(struct parser *p)
{
  if (takes_sign(p, "-")) {
    struct node *n = new_node(p, N_NEGATIVE);
    n->a = with_sign(p);
    return n;
  }
  return takes_sign(p, "+") ? with_sign(p) : postfix(p);
}

static struct node *unary(struct parser *p)
{
  if (++p->w->depth > MOST_DEPTH) work_fails(p->w, "it is nested too deep");
  struct node *n = tested(p, filtered(p, with_sign(p)));
  while (is_sign(p, "|")) n = tested(p, filtered(p, n));
  p->w->depth--;
  return n;
}

// A sign binds tighter than a power, and powers from the left: as in Jinja, not as in Python.
static struct node *power(struct parser *p)
{
  struct node *n = unary(p);
  while (takes_sign(p, "**")) n = binary(p, "**", n, unary(p));
  return n;
}

static struct node *product(struct parser *p)
{
  struct node *n = power(p);
  while (is_sign(p, "*") || is_sign(p, "/") || is_sign(p, "//") || is_sign(p, "%")) {
    const char *sign = p->word;
    next_token(p);
    n = binary(p, sign, n, power(p));
  }
  return n;
}

static struct node *joined(struct parser *p)
{
  struct node *n = product(p);
  while (is_sign(p, "~")) {
    next_token(p);
    n = binary(p, "~", n, product(p));
  }
  return n;
}

static struct node *sum(struct parser *p)
{
  struct node *n = joined(p);
  while (is_sign(p, "+") || is_sign(p, "-")) {
    const char *sign = p->word;
    next_token(p);
    n = binary(p, sign, n, joined(p));
  }
  return n;
}

static struct node *comparison(struct parser *p)
{
  struct node *n = sum(p), *chain = NULL;
  for (;;) {
    const char *sign = NULL;
    if (p->token == T_SIGN &&
        (!strcmp(p->word, "==") || !strcmp(p->word, "!=") || !strcmp(p->word, "<") ||
         !strcmp(p->word, ">") || !strcmp(p->word, "<=") || !strcmp(p->word, ">="))) {
      sign = p->word;
      next_token(p);
    } else if (takes_word(p, "in")) {
      sign = "in";
    } else if (is_word(p, "not")) {
      next_token(p);
      if (!takes_word(p, "in")) work_fails(p->w, "'in' is missing behind 'not'");
      sign = "not in";
    } else {
      return chain ? chain : n;
    }
    if (!chain) {
      chain = new_node(p, N_COMPARE);
      chain->a = n;
    }
    struct node *pair = new_node(p, N_PAIR);
    pair->name = sign;
    pair->a = sum(p);
    add_node(p, chain, pair);
  }
}

static struct node *negation(struct parser *p)
{
  if (is_word(p, "not")) {
    next_token(p);
    struct node *n = new_node(p, N_NOT);
    n->a = negation(p);
    return n;
  }
  return comparison(p);
}

static struct node *conjunction(struct parser *p)
{
  struct node *n = negation(p);
  while (takes_word(p, "and")) {
    struct node *both = new_node(p, N_AND);
    both->a = n;
    both->b = negation(p);
    n = both;
  }
  return n;
}

static struct node *disjunction(struct parser *p)
{
  struct node *n = conjunction(p);
  while (takes_word(p, "or")) {
    struct node *both = new_node(p, N_OR);
    both->a = n;
    both->b = conjunction(p);
    n = both;
  }
  return n;
}

static struct node *expression(struct parser *p)
{
  if (++p->w->depth > MOST_DEPTH) work_fails(p->w, "it is nested too deep");
  struct node *n = disjunction(p);
  while (takes_word(p, "if")) {
    struct node *choice = new_node(p, N_CHOICE);
    choice->a = n;
    choice->b = disjunction(p);
    if (takes_word(p, "else")) choice->c = expression(p);
    n = choice;
  }
  p->w->depth--;
  return n;
}

// a, b: a tuple without brackets.
static struct node *expressions(struct parser *p)
{
  struct node *n = expression(p);
  if (!is_sign(p, ",")) return n;
  struct node *tuple = new_node(p, N_TUPLE);
  add_node(p, tuple, n);
  while (takes_sign(p, ",") && p->token != T_END && !is_sign(p, "="))
    add_node(p, tuple, expression(p));
  return tuple;
}

// ---- statements --------------------------------------------------------------------------------

// The end of a tag: notes what it takes of the text behind it.
static void end_tag(struct parser *p, bool is_block)
{
  if (p->token != T_END)
    work_fails(p->w, "the tag does not end here%s%s",
               p->token == T_NAME || p->token == T_SIGN ? ": " : "",
               p->token == T_NAME || p->token == T_SIGN ? p->word : "");
  p->takes_blanks = *p->at == '-';
  p->takes_line = is_block && *p->at != '+' && *p->at != '-';
  p->at += (*p->at == '-' || *p->at == '+') + 2;
}

static bool is_blank(char c)
{
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}

// Adds the text up to the next tag, without what the tags on both sides take.
static void take_text(struct parser *p, struct node *body, const char *end)
{
  const char *from = p->at, *to = end;
  count_lines(p, from, end);
  p->at = end;
  if (p->takes_blanks)
    while (from < to && is_blank(*from)) from++;
  else if (p->takes_line && from < to && *from == '\n')
    from++;
  p->takes_blanks = p->takes_line = false;
  if (*end == '{' && end[2] == '-') {
    while (to > from && is_blank(to[-1])) to--;
  } else if (*end == '{' && end[1] != '{' &&
             end[2] != '+') { // blanks before a block that begins a line
    const char *line = to;
    while (line > from && (line[-1] == ' ' || line[-1] == '\t')) line--;
    const bool begins = line > from ? line[-1] == '\n' : line == p->text || line[-1] == '\n';
    if (begins) to = line;
  }
  if (from == to) return;
  struct node *n = new_node(p, N_TEXT);
  n->value = text_value(p->w, work_copy(p->w, from, (size_t)(to - from)), (size_t)(to - from));
  add_node(p, body, n);
}

static const char *next_tag(const char *at)
{
  for (; *at; at++)
    if (at[0] == '{' && (at[1] == '{' || at[1] == '%' || at[1] == '#')) return at;
  return at;
}

static struct node *body_until(struct parser *p, const char *const *ends, const char **end);

static struct node *parse_if(struct parser *p)
{
  static const char *const ends[] = {"elif", "else", "endif", NULL};
  const char *end;
  struct node *n = new_node(p, N_IF);
  n->a = expression(p);
  end_tag(p, true);
  n->b = body_until(p, ends, &end);
  if (!strcmp(end, "elif")) {
    n->c = parse_if(p);
    return n;
  }
  if (!strcmp(end, "else")) {
    static const char *const last[] = {"endif", NULL};
    end_tag(p, true);
    n->c = body_until(p, last, &end);
  }
  end_tag(p, true);
  return n;
}

// "a", "a, b", "(a, (b, c))", "a.b": what is set.
static struct node *targets(struct parser *p)
{
  struct node *n = new_node(p, N_TUPLE);
  const bool brackets = takes_sign(p, "(");
  if (++p->w->depth > MOST_DEPTH) work_fails(p->w, "it is nested too deep");
  do {
    if (is_sign(p, "(")) {
      add_node(p, n, targets(p));
      continue;
    }
    struct node *target = new_node(p, N_NAME);
    target->name = needs_name(p);
    if (takes_sign(p, ".")) {
      struct node *member = new_node(p, N_MEMBER);
      member->a = target;
      member->name = needs_name(p);
      target = member;
    }
    add_node(p, n, target);
  } while (takes_sign(p, ",") && (p->token == T_NAME || is_sign(p, "(")));
  p->w->depth--;
  if (brackets) needs_sign(p, ")");
  return n;
}

static struct node *parse_for(struct parser *p)
{
  static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
  const char *end;
  struct node *n = new_node(p, N_FOR);
  add_node(p, n, targets(p));
  if (!takes_word(p, "in")) work_fails(p->w, "'in' is missing in a for");
  n->a = disjunction(p);
  add_node(p, n, takes_word(p, "if") ? expression(p) : NULL);
  n->flag = takes_word(p, "recursive");
  end_tag(p, true);
  n->b = body_until(p, ends, &end);
  if (!strcmp(end, "else")) {
    end_tag(p, true);
    n->c = body_until(p, last, &end);
  }
  end_tag(p, true);
  return n;
}

static struct node *parse_set(struct parser *p)
{
  static const char *const ends[] = {"endset", NULL};
  const char *end;
  struct node *n = new_node(p, N_SET), *filter;
  n->a = targets(p);
  if (takes_sign(p, "=")) {
    n->b = expressions(p);
    end_tag(p, true);
    return n;
  }
  n->kind = N_SET_BLOCK;
  filter = filtered(p, NULL);
  n->c = filter;
  end_tag(p, true);
  n->b = body_until(p, ends, &end);
  end_tag(p, true);
  return n;
}

// The arguments and the body of a macro, or of what a call gives to one.
static void parse_macro_body(struct parser *p, struct node *n, bool has_arguments)
{
  const char *const ends[] = {n->name ? "endmacro" : "endcall", NULL};
  const char *end;
  const struct parser outer = *p;
  p->uses_caller = p->uses_varargs = p->uses_kwargs = false;
  while (has_arguments && !is_sign(p, ")")) {
    const char *name = needs_name(p);
    if (!strcmp(name, "caller") || !strcmp(name, "varargs") || !strcmp(name, "kwargs"))
      work_fails(p->w, "an argument that is called %s is not known here", name);
    add_named(p, n, name, takes_sign(p, "=") ? expression(p) : NULL);
    if (!takes_sign(p, ",")) break;
  }
  if (has_arguments) needs_sign(p, ")");
  if (!n->name) n->a = expression(p);
  if (!n->name && n->a->kind != N_CALL) work_fails(p->w, "'call' wants a call");
  end_tag(p, true);
  n->b = body_until(p, ends, &end);
  end_tag(p, true);
  n->uses_caller = p->uses_caller;
  n->uses_varargs = p->uses_varargs;
  n->uses_kwargs = p->uses_kwargs;
  p->uses_caller |= outer.uses_caller;
  p->uses_varargs |= outer.uses_varargs;
  p->uses_kwargs |= outer.uses_kwargs;
}

static struct node *parse_macro(struct parser *p)
{
  struct node *n = new_node(p, N_MACRO);
  n->name = needs_name(p);
  needs_sign(p, "(");
  parse_macro_body(p, n, true);
  return n;
}

static struct node *parse_call_block(struct parser *p)
{
  struct node *n = new_node(p, N_CALL_BLOCK);
  parse_macro_body(p, n, takes_sign(p, "("));
  return n;
}

static struct node *parse_with(struct parser *p)
{
  static const char *const ends[] = {"endwith", NULL};
  const char *end;
  struct node *n = new_node(p, N_WITH);
  while (p->token != T_END) {
    struct node *pair = new_node(p, N_PAIR);
    pair->a = targets(p);
    needs_sign(p, "=");
    pair->b = expression(p);
    add_node(p, n, pair);
    if (!takes_sign(p, ",")) break;
  }
  end_tag(p, true);
  n->b = body_until(p, ends, &end);
  end_tag(p, true);
  return n;
}

// Without another template a block stands where it is.
static struct node *parse_block(struct parser *p)
{
  static const char *const ends[] = {"endblock", NULL};
  const char *end;
  struct node *n = new_node(p, N_BLOCK);
  n->name = needs_name(p);
  const char **names = work_alloc(p->w, (p->nblocks + 1) * sizeof *names);
  for (size_t i = 0; i < p->nblocks; i++) {
    if (!strcmp(p->blocks[i], n->name)) work_fails(p->w, "two blocks have the name %s", n->name);
    names[i] = p->blocks[i];
  }
  names[p->nblocks++] = n->name;
  p->blocks = names;
  n->flag = takes_word(p, "scoped");
  end_tag(p, true);
  n->b = body_until(p, ends, &end);
  if (is_word(p, n->name)) next_token(p);
  end_tag(p, true);
  return n;
}

// Only what changes nothing: texts are never escaped here.
static struct node *parse_autoescape(struct parser *p)
{
  static const char *const ends[] = {"endautoescape", NULL};
  const char *end;
  struct node *n = new_node(p, N_WITH);
  if (!takes_word(p, "false") && !takes_word(p, "False"))
    work_fails(p->w, "the statement 'autoescape' is not known here");
  end_tag(p, true);
  n->b = body_until(p, ends, &end);
  end_tag(p, true);
  return n;
}

static struct node *parse_body_of(struct parser *p, enum node_kind kind, const char *last)
{
  const char *const ends[] = {last, NULL};
  const char *end;
  struct node *n = new_node(p, kind);
  if (kind == N_FILTER_BLOCK) {
    struct node *filter = new_node(p, N_FILTER);
    filter->name = needs_name(p);
    if (takes_sign(p, "(")) arguments(p, filter);
    n->a = filtered(p, filter);
  }
  end_tag(p, true);
  n->b = body_until(p, ends, &end);
  end_tag(p, true);
  return n;
}

static struct node *parse_raw(struct parser *p)
{
  struct node *body = new_node(p, N_BODY);
  end_tag(p, false); // it takes no end of a line
  for (const char *at = p->at; (at = strstr(at, "{%")); at += 2) {
    const char *word = at + 2 + (at[2] == '-' || at[2] == '+');
    while (is_blank(*word)) word++;
    if (strncmp(word, "endraw", 6)) continue;
    take_text(p, body, at);
    p->at = word;
    next_token(p);
    next_token(p);
    end_tag(p, true);
    return body;
  }
  work_fails(p->w, "raw does not end");
}

static struct node *statement(struct parser *p, const char *word)
{
  if (!strcmp(word, "if")) return parse_if(p);
  if (!strcmp(word, "for")) return parse_for(p);
  if (!strcmp(word, "set")) return parse_set(p);
  if (!strcmp(word, "macro")) return parse_macro(p);
  if (!strcmp(word, "raw")) return parse_raw(p);
  if (!strcmp(word, "call")) return parse_call_block(p);
  if (!strcmp(word, "with")) return parse_with(p);
  if (!strcmp(word, "block")) return parse_block(p);
  if (!strcmp(word, "autoescape")) return parse_autoescape(p);
  if (!strcmp(word, "generation")) return parse_body_of(p, N_GENERATION, "endgeneration");
  if (!strcmp(word, "filter")) return parse_body_of(p, N_FILTER_BLOCK, "endfilter");
  if (!strcmp(word, "break") || !strcmp(word, "continue")) {
    struct node *n = new_node(p, *word == 'b' ? N_BREAK : N_CONTINUE);
    end_tag(p, true);
    return n;
  }
  work_fails(p->w, "the statement '%.40s' is not known here", word);
}

static struct node *body_until(struct parser *p, const char *const *ends, const char **end)
{
  struct node *body = new_node(p, N_BODY);
  if (++p->w->depth > MOST_DEPTH) work_fails(p->w, "it is nested too deep");
  for (;;) {
    const char *tag = next_tag(p->at);
    take_text(p, body, tag);
    if (!*tag) {
      if (ends) work_fails(p->w, "'%s' is missing at the end", ends[0]);
      *end = NULL;
      break;
    }
    if (tag[1] == '#') {
      const char *stop = strstr(tag + 2, "#}");
      if (!stop) work_fails(p->w, "a comment does not end");
      count_lines(p, tag, stop);
      p->takes_blanks = stop[-1] == '-' && stop > tag + 2;
      p->takes_line = !p->takes_blanks && stop[-1] != '+';
      p->at = stop + 2;
      continue;
    }
    p->at = tag + 2 + (tag[2] == '-' || (tag[2] == '+' && tag[1] == '%'));
    p->braces = 0;
    next_token(p);
    if (tag[1] == '{') {
      struct node *n = new_node(p, N_PRINT);
      n->a = expressions(p);
      end_tag(p, false);
      add_node(p, body, n);
      continue;
    }
    const char *word = needs_name(p);
    bool ended = false;
    for (int i = 0; ends && ends[i]; i++)
      if (!strcmp(word, ends[i])) *end = ends[i], ended = true;
    if (ended) break;
    add_node(p, body, statement(p, word));
  }
  p->w->depth--;
  return body;
}

struct node *jinja_parse(struct work *w, const char *text)
{
  // Ends of lines are one character, and one at the end of the text goes.
  size_t n = 0;
  char *plain = work_alloc(w, strlen(text) + 1);
  for (const char *c = text; *c; c++) {
    if (*c == '\r') {
      plain[n++] = '\n';
      c += c[1] == '\n';
    } else {
      plain[n++] = *c;
    }
  }
  if (n && plain[n - 1] == '\n') n--;
  plain[n] = 0;
  struct parser p = {.w = w, .text = plain, .at = plain};
  const char *end;
  w->line = 1;
  return body_until(&p, NULL, &end);
}
