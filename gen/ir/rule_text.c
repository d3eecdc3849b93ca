/* rule_text.c: parses the text of a rule (ops.h has the grammar) into operands, dimensions and
   letters, and checks a rule that a plan writes. */
#include "ir/ir.h"

#include <ctype.h>
#include <string.h>

static const char *scan_marks(const char *c, struct rule_letter *t)
{
  for (; *c == '!' || *c == '@'; c++) {
    t->whole |= *c == '!';
    t->gets_start |= *c == '@';
  }
  return c;
}

/* A letter, its size and its marks; NULL if there is none. */
static const char *scan_letter(const char *c, struct rule_letter *t)
{
  if (!isalpha((unsigned char)*c)) return NULL;
  *t = (struct rule_letter){.name = *c++};
  for (int digits = 0; isdigit((unsigned char)*c); c++) {
    if (++digits > 15) return NULL;
    t->size = 10 * t->size + *c - '0';
  }
  return scan_marks(c, t);
}

static const char *scan_dimension(const char *c, struct rule_dimension *d)
{
  *d = (struct rule_dimension){0};
  if (*c == '1') return c + 1;
  if (!strncmp(c, "...", 3)) {
    d->n = 1;
    d->term[0] = (struct rule_letter){.name = '.'};
    return scan_marks(c + 3, &d->term[0]);
  }
  if (*c != '(') {
    d->n = 1;
    return scan_letter(c, &d->term[0]);
  }
  for (c++; c && *c != ')';) {
    if (d->n == MAX_DIMS) return NULL;
    c = scan_letter(c, &d->term[d->n++]);
  }
  return c && d->n ? c + 1 : NULL;
}

static const char *scan_word(const char *c, struct rule_operand *o)
{
  static const struct {
    const char *word;
    int type;
    enum reduction reduction;
  } known[] = {{"sum", NONE, SUM}, {"max", NONE, MAX}, {"min", NONE, MIN},
               {"f32", F32, SUM},  {"i32", I32, SUM},  {"bool", BOOL, SUM}};
  size_t n = strspn(c, "abcdefghijklmnopqrstuvwxyz0123456789");
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strlen(known[i].word) != n || strncmp(c, known[i].word, n)) continue;
    if (known[i].type != NONE)
      o->type = known[i].type;
    else
      o->reduction = known[i].reduction;
    return c + n;
  }
  return NULL;
}

/* "tk", the letters after a `+`. */
static const char *scan_summed(const char *c, struct rule_operand *o)
{
  size_t n = strspn(c, "abcdefghijklmnopqrstuvwxyz");
  if (n == 0 || n >= sizeof o->summed) return NULL;
  memcpy(o->summed, c, n);
  return c + n;
}

static const char *rule_text_skip_blanks(const char *c)
{
  return c + strspn(c, " ");
}

static const char *scan_operand(const char *c, struct rule_operand *o, bool output)
{
  *o = (struct rule_operand){.type = NONE};
  c = rule_text_skip_blanks(c);
  while (c && *c && !strchr(",-*:+", *c)) {
    if (o->n > MAX_DIMS) return NULL;
    c = scan_dimension(c, &o->dimension[o->n++]);
    if (c) c = rule_text_skip_blanks(c);
  }
  if (c && *c == '*') {
    o->repeated = true;
    c++;
  }
  if (c && *c == '+') c = output ? NULL : scan_summed(c + 1, o);
  while (c && *c == ':' && output) c = scan_word(c + 1, o);
  return c ? rule_text_skip_blanks(c) : NULL;
}

static const char *scan_inputs(const char *c, struct rule *r)
{
  if (!strncmp(c, "->", 2)) return c;
  for (;; c++) {
    const char *at = c;
    if (r->nin == MAX_INPUTS) return NULL;
    c = scan_operand(at, &r->in[r->nin++], false);
    if (!c || *c != ',') return c;
  }
}

static const char *scan_outputs(const char *c, struct rule *r)
{
  for (;; c++) {
    if (r->nout == MAX_OUTPUTS) return NULL;
    c = scan_operand(c, &r->out[r->nout++], true);
    if (!c || *c != ',') return c;
  }
}

/* Whether the text is a rule. */
static bool scan_rule(const char *text, struct rule *r)
{
  *r = (struct rule){0};
  const char *c = scan_inputs(text, r);
  if (!c || strncmp(c, "->", 2) != 0) return false;
  c = scan_outputs(c + strlen("->"), r);
  return c && !*c;
}

/* The parsed rules: each text is parsed once. By the hash of its text. */
struct known {
  const char *text;
  const struct rule *rule;
};
enum { MOST_KNOWN = 1 << 10 };
static _Thread_local struct known known[MOST_KNOWN];

const struct rule *scanned_rule(const char *text)
{
  struct known *k = &known[hash_bytes(HASH_START, text, strlen(text)) % MOST_KNOWN];
  if (k->rule && (k->text == text || !strcmp(k->text, text))) return k->rule;
  struct rule *r = alloc(sizeof *r);
  if (!scan_rule(text, r)) return NULL;
  *k = (struct known){text, r};
  return r;
}

bool is_capital_dimension(const struct rule_dimension *d)
{
  return d->n == 1 && isupper((unsigned char)d->term[0].name);
}

bool is_rest_dimension(const struct rule_dimension *d)
{
  return d->n == 1 && d->term[0].name == '.';
}

bool operand_has(const struct rule_operand *o, bool (*is)(const struct rule_dimension *))
{
  for (int i = 0; i < o->n; i++)
    if (is(&o->dimension[i])) return true;
  return false;
}

/* ----------------------------------------------------------------------- rules that plans write */

static const char *operand_error(const struct rule_operand *o, char *seen)
{
  int rests = 0;
  for (int i = 0; i < o->n; i++) {
    rests += is_rest_dimension(&o->dimension[i]);
    for (int k = 0; k < o->dimension[i].n; k++) {
      char name = o->dimension[i].term[k].name;
      if (name == '.') continue;
      if (isupper((unsigned char)name))
        return "capital letters are for tpgen's own operators: write lower-case ones";
      if (seen[(unsigned char)name]++) return "a letter stands twice in one operand";
    }
  }
  return rests > 1 ? "'...' stands twice in one operand" : NULL;
}

/* "a|bc:max": names of inputs, alternatives. */
static const char *linear_error(const char *linear, int nin)
{
  for (const char *c = linear; *c;) {
    size_t n = strcspn(c, "|:");
    if (n == 0) return "linear names no input between two '|'";
    for (size_t i = 0; i < n; i++)
      if (c[i] != '*' && (c[i] < 'a' || c[i] >= 'a' + nin))
        return "linear names inputs by the letters a, b ..., or all by *, parted by |";
    c += n;
    if (*c == ':') {
      if (strncmp(c, ":max", 4) && strncmp(c, ":min", 4) && strncmp(c, ":sum", 4))
        return "linear knows :sum, :max and :min";
      c += strlen(":max");
    }
    if (*c == '|' && !c[1]) return "linear ends with '|'";
    if (*c == '|')
      c++;
    else if (*c)
      return "linear's alternatives are parted by |";
  }
  return NULL;
}

const char *rule_error(const char *text, const char *linear)
{
  struct rule r;
  if (!scan_rule(text, &r))
    return "it is not of the form inputs -> outputs, such as mk,kn->mn; an output's words are :sum "
           ":max :min :f32 :i32 :bool";
  if (r.nin == 0 || (r.nin == 1 && r.in[0].n == 0)) return "an operator needs an input";
  for (int i = 0; i < r.nin + r.nout; i++) {
    char seen[256] = {0};
    const char *why = operand_error(i < r.nin ? &r.in[i] : &r.out[i - r.nin], seen);
    if (why) return why;
    if (i < r.nin && r.in[i].repeated) return "a repeated operand is for tpgen's own operators";
    if (i < r.nin && *r.in[i].summed) return "a count, with +, is for tpgen's own operators";
  }
  return linear_error(linear, r.nin);
}
