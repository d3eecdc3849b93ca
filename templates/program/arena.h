
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
//   rows of 64, 128 apart    each 64 elements are contiguous; the next 64 begin 128 elements later
//   dimension 1 outermost    in memory, dimension 1 comes first, and then the others in order
//   a bucket                 what several values share in one collective

$rows$