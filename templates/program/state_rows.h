// The optimizer's states of a parameter have its name, shape and place. They begin as 0.
#define STATE_ROW(kind, name, rest, count, member, stride, ...)                                    \
  {{"optim." #kind "." name, rest}, {NULL, NULL}, count, STATE, F32,                               \
   offsetof(struct memory, kind.member), stride, __VA_ARGS__, {CONSTANT, {0, 0}}},
#define STATES(...) $rows$

