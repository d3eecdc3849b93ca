/* rule_text.h: a parsed rule of ops.h. */
#ifndef TPGEN_IR_RULE_TEXT_H
#define TPGEN_IR_RULE_TEXT_H

#include "ir/layout.h"

/* One letter of a rule; '.' means `...`. */
struct rule_letter {
  int64_t size; /* or 0 */
  char name;
  bool whole, gets_start;
};
/* One dimension of an operand: without terms a "1", with several a merged dimension. */
struct rule_dimension {
  int n;
  struct rule_letter term[MAX_DIMS];
};
struct rule_operand {
  int n;
  struct rule_dimension dimension[MAX_DIMS + 1];
  bool repeated;
  char summed[MAX_DIMS]; /* the letters after a `+` */
  enum reduction reduction;
  int type;
};
struct rule {
  int nin, nout;
  struct rule_operand in[MAX_INPUTS], out[MAX_OUTPUTS];
};

/* Each text is parsed once; NULL if it is no rule. */
const struct rule *scanned_rule(const char *text);
bool is_capital_dimension(const struct rule_dimension *d);
bool is_rest_dimension(const struct rule_dimension *d);
bool operand_has(const struct rule_operand *o, bool (*is)(const struct rule_dimension *));
/* The error in a rule that a plan writes, and in its list of linear inputs; or NULL. */
const char *rule_error(const char *text, const char *linear);

#endif
