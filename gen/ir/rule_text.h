/* rule_text.h: a rule of ops.h taken apart. */
#ifndef TPGEN_IR_RULE_TEXT_H
#define TPGEN_IR_RULE_TEXT_H

#include "ir/layout.h"

/* One letter as it stands in a rule; '.' stands for `...`. */
struct rule_letter {
  int64_t size; /* or 0 */
  char name;
  bool whole, told;
};
/* One dimension of an operand: no term is a "1", several are a merged dimension. */
struct rule_dimension {
  int n;
  struct rule_letter term[MAX_DIMS];
};
struct rule_operand {
  int n;
  struct rule_dimension dimension[MAX_DIMS + 1];
  bool repeated;
  enum reduction reduction;
  int type;
};
struct rule {
  int nin, nout;
  struct rule_operand in[MAX_INPUTS], out[MAX_OUTPUTS];
};

/* Each text is taken apart once; NULL where it is no rule. */
const struct rule *scanned_rule(const char *text);
bool is_capital_dimension(const struct rule_dimension *d);
bool is_rest_dimension(const struct rule_dimension *d);
bool operand_has(const struct rule_operand *o, bool (*is)(const struct rule_dimension *));
/* What is wrong with a rule that a plan writes, and with the inputs in which it is linear; or
   NULL. */
const char *rule_error(const char *text, const char *linear);

#endif
