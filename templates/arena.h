
// The arena: a pointer to each activation, with its offset in bytes. If each module of a list has
// one, `stride` is the bytes from one module's to the next. If only some modules' are kept at once,
// `kept` is how many: they take turns.
#define ACTIVATION(type, name, offset)                                                             \
  static inline type *at_##name(void) { return (type *)(m->arena + offset); }
#define STACKED(type, name, offset, stride)                                                        \
  static inline type *at_##name(int l) { return (type *)(m->arena + offset + (long)l * stride); }
#define ROTATING(type, name, offset, stride, kept)                                                 \
  static inline type *at_##name(int l)                                                             \
  {                                                                                                \
    return (type *)(m->arena + offset + (long)(l % kept) * stride);                                \
  }

// Below each: its shape, its placement, and the phases in which it lives. Before and after, others
// may have its bytes. The order is that of the program, function by function.

$rows$