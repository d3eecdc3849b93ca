
// The arena: a pointer to each activation, with its offset in bytes, and, where each module of a
// list has one, with the bytes from one module's to the next. Where fewer are kept than there are
// modules, the last number says how many: these take turns.
#define ACTIVATION(type, name, offset)                                                             \
  static inline type *at_##name(void) { return (type *)(m->arena + offset); }
#define STACKED(type, name, offset, stride)                                                        \
  static inline type *at_##name(int l) { return (type *)(m->arena + offset + (long)l * stride); }
#define ROTATING(type, name, offset, stride, kept)                                                 \
  static inline type *at_##name(int l)                                                             \
  {                                                                                                \
    return (type *)(m->arena + offset + (long)(l % kept) * stride);                                \
  }

// Below each: its shape, its placement, and in which phases it is needed: another may have its
// bytes before and after. In the order of the program, function by function.

$rows$