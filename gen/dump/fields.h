/* clang-format off */
/* fields.h: the fields that a dump states of each record, one row a field, for write_fields.c and
   read_fields.c. A field that a later pass needs is only a row here: FIELD(KIND, member, word)
   KIND    How the field is written and read; `put_KIND` and `read_KIND` of the two files.
             FLAG            `word` if it is set; `no_word` if it is not, and usually is
             INT LONG REAL   a number; BITS: in hexadecimal, a bit for each dimension
             TEXT            a text, in quotes unless it is a plain word; MEASURED: of a device.json
             VALUE MODULE FUNCTION OP   its name in the dump; for OP the label @1 of its line
             ORDER           dimensions, outermost first: 1,0,2; the others a word of an enum
   member, word   In the struct, and before the field. Usual fields are left out (usual_op). */
#ifndef TPGEN_DUMP_FIELDS_H
#define TPGEN_DUMP_FIELDS_H

#define DEVICE_FIELDS(FIELD)                \
  FIELD(REAL,      flops[IN_FLOAT32],  "float32")    \
  FIELD(REAL,      flops[IN_TFLOAT32], "tfloat32")   \
  FIELD(REAL,      flops[IN_BFLOAT16], "bfloat16")   \
  FIELD(REAL,      bandwidth,          "bandwidth")  \
  FIELD(INT,       processors,         "processors") \
  FIELD(REAL,      products,           "products")   \
  FIELD(REAL,      attention,          "attention")  \
  FIELD(REAL,      attention_back,     "attention_back") \
  FIELD(REAL,      streaming,          "streaming") \
  FIELD(MEASURED,  measured,           "measured")

#define CLUSTER_FIELDS(FIELD)               \
  FIELD(INT,       nodes,           "nodes")         \
  FIELD(INT,       devices,         "devices")       \
  FIELD(INT,       cards,           "cards")         \
  FIELD(REAL,      intra.bandwidth, "intra_bandwidth") \
  FIELD(REAL,      intra.latency,   "intra_latency") \
  FIELD(REAL,      inter.bandwidth, "inter_bandwidth") \
  FIELD(REAL,      inter.latency,   "inter_latency") \
  FIELD(FLAG,      adds_in_switch,  "adds_in_switch")

#define MODULE_FIELDS(FIELD)                \
  FIELD(TEXT,      name,          "name")   \
  FIELD(TEXT,      class_name,    "class")  \
  FIELD(MODULE,    parent,        "parent") \
  FIELD(INT,       line,          "line")   \
  FIELD(INT,       unit,          "unit")   \
  FIELD(INT,       steps,         "steps")  \
  FIELD(INT,       again,         "again")

#define UNIT_FIELDS(FIELD)                  \
  FIELD(MODULE,    module,        "module") \
  FIELD(TEXT,      who,           "by")     \
  FIELD(INT,       line,          "line")   \
  FIELD(BITS,      shards,        "shards") \
  FIELD(BITS,      copies,        "copies") \
  FIELD(BITS,      again,         "again")  \
  FIELD(INT,       dim,           "dim")    \
  FIELD(FLAG,      once,          "once")   \
  FIELD(FLAG,      reduces_each,  "reduces_each") \
  FIELD(FLAG,      sums_whole,    "sums_whole")

#define CALL_FIELDS(FIELD)                  \
  FIELD(INT,       parent,        "within") \
  FIELD(INT,       first,         "first")  \
  FIELD(INT,       last,          "last")   \
  FIELD(MODULE,    within,        "named")

#define STYLE_FIELDS(FIELD)                 \
  FIELD(MODULE,    module,        "on")     \
  FIELD(MESH_DIM,  mesh_dim,      "over")   \
  FIELD(INT,       line,          "line")

#define CUSTOM_FIELDS(FIELD)                \
  FIELD(TEXT,      rule,          "rule")   \
  FIELD(TEXT,      linear,        "linear") \
  FIELD(INT,       line,          "line")   \
  FIELD(TEXT,      kernel[LANGUAGE_C], "c") \
  FIELD(TEXT,      kernel[LANGUAGE_CUDA], "cu")

#define MOVE_FIELDS(FIELD)                  \
  FIELD(LAYOUT,    from,          "from")   \
  FIELD(LAYOUT,    to,            "to")     \
  FIELD(INT,       idle_first,    "idle_first") \
  FIELD(INT,       idle_last,     "idle_last")

#define ASYNC_FIELDS(FIELD)                 \
  FIELD(MODULE,    module,        "on")     \
  FIELD(MESH_DIM,  mesh_dim,      "over")   \
  FIELD(INT,       pieces,        "pieces") \
  FIELD(INT,       line,          "line")   \
  FIELD(FLAG,      met,           "met")

#define RESULT_FIELDS(FIELD)                \
  FIELD(OP,        op,            "of")     \
  FIELD(INT,       async,         "async")  \
  FIELD(INT,       pieces,        "pieces") \
  FIELD(INT,       times,         "times")  \
  FIELD(INT,       tried,         "tried")  \
  FIELD(LONG,      whole,         "whole")  \
  FIELD(LONG,      in_pieces,     "in_pieces") \
  FIELD(TEXT,      why_not,       "why_not")

#define INDEX_USE_FIELDS(FIELD)             \
  FIELD(INT,       line,          "line")   \
  FIELD(LONG,      below,         "below")  \
  FIELD(LONG,      ignored,       "ignored") \
  FIELD(FLAG,      ignores,       "ignores") \
  FIELD(VALUE,     input,         "input")  \
  FIELD(SHAPE,     part,          "part")

#define OPTIMIZER_FIELDS(FIELD)             \
  FIELD(TEXT,      settings,      "settings") \
  FIELD(TEXT,      match,         "match")  \
  FIELD(TEXT,      rate,          "rate")   \
  FIELD(TEXT,      schedule,      "schedule") \
  FIELD(FLAG,      by_part,       "by_part") \
  FIELD(INT,       line,          "line")

#define UPDATE_STEP_FIELDS(FIELD)           \
  FIELD(TEXT,      equation,      "rule")   \
  FIELD(TYPE,      type,          "type")   \
  FIELD(FLAG,      keepdim,       "keep")   \
  FIELD(BITS,      dims,          "dims")   \
  FIELD(REAL,      scalar,        "scalar")

#define GRAPH_FIELDS(FIELD)                 \
  FIELD(INT,       mesh.line,     "mesh_line") \
  FIELD(LONG,      mesh.memory,   "memory") \
  FIELD(VALUE,     loss,          "loss")   \
  FIELD(VALUE,     norm,          "norm")   \
  FIELD(TEXT,      recomputation, "recomputation")

#define OPTIONS_FIELDS(FIELD)               \
  FIELD(FLAG,      greedy,        "greedy") \
  FIELD(FLAG,      tf32,          "tf32")   \
  FIELD(FLAG,      checkpoint,    "checkpoint") \
  FIELD(FLAG,      selective,     "selective") \
  FIELD(LONG,      within,        "within") \
  FIELD(PREFETCH,  prefetch,      "prefetch") \
  FIELD(INT,       prefetched,    "prefetched") \
  FIELD(FLAG,      overlap,       "overlap") \
  FIELD(BUCKETING, bucketing,     "bucketing") \
  FIELD(INT,       train_line,    "line")   \
  FIELD(INT,       steps,         "steps")  \
  FIELD(SEED,      seed,          "seed")   \
  FIELD(REAL,      clip,          "clip")   \
  FIELD(FLAG,      wants_norm,    "wants_norm") \
  FIELD(FLAG,      norm_of_largest, "norm_of_largest") \
  FIELD(INT,       accumulate,    "accumulate") \
  FIELD(FLAG,      reduce_each_batch, "reduce_each_batch") \
  FIELD(TEXT,      reductions,    "reductions") \
  FIELD(FLAG,      shuffles,      "shuffles") \
  FIELD(SEED,      shuffle,       "shuffle") \
  FIELD(LAST_BATCH, last_batch,   "last_batch") \
  FIELD(FLAG,      validates,     "validates") \
  FIELD(TEXT,      validation_data, "validation_data") \
  FIELD(TEXT,      validated,     "validated") FIELD(FLAG, says_validated, "says_validated") \
  FIELD(TEXT,      adapter,       "adapter") \
  FIELD(REAL,      adapter_scale, "adapter_scale") FIELD(TEXT, exports, "exports") \
  FIELD(TEXT,      transposed,        "transposed") \
  FIELD(TEXT,      weights,       "weights") \
  FIELD(TEXT,      exported,      "exported") \
  FIELD(TEXT,      notes,         "notes") \
  FIELD(FLAG,      emits_library, "emits_library") \
  FIELD(TEXT,      library_name,  "library_name") \
  FIELD(INT,       validate_every, "validate_every") FIELD(INT, validate_steps, "validate_steps") \
  FIELD(INT,       generate.slots, "slots") \
  FIELD(INT,       generate.context, "context") FIELD(INT, generate.prefill, "prefill") \
  FIELD(INT,       generate.caches, "caches") FIELD(TEXT, generate.why, "chosen_as")

#define ARENA_FIELDS(FIELD)                 \
  FIELD(LONG,      arena_bytes,   "arena_bytes") \
  FIELD(LONG,      live_bytes,    "live_bytes") FIELD(LONG, scratch_bytes, "scratch_bytes")

#define EARLY_END_FIELDS(FIELD)             \
  FIELD(TEXT,      what,          "what")   \
  FIELD(LONG,      most,          "after")  \
  FIELD(TEXT,      unit,          "unit")

#define PIPELINE_FIELDS(FIELD)              \
  FIELD(TEXT,      schedule,      "schedule") \
  FIELD(TEXT,      csv,           "csv")    \
  FIELD(INT,       spare_slots,   "spare_slots") \
  FIELD(INT,       here,          "here") FIELD(INT, line, "line")

/* Of the program of one place. */
#define ALL_STAGES_FIELDS(FIELD)            \
  FIELD(REAL,      flops[0],      "flops")  \
  FIELD(REAL,      flops[1],      "bfloat16_flops") \
  FIELD(FLAG,      gathers_each_batch, "gathers_each_batch") \
  FIELD(FLAG,      has_row_bounds, "has_row_bounds") \
  FIELD(FLAG,      has_values_by_rows, "has_values_by_rows") \
  FIELD(FLAG,      multiplies_by_onednn, "multiplies_by_onednn") \
  FIELD(FLAG,      has_step_number, "has_step_number") \
  FIELD(INT,       text.rows,     "text_rows") FIELD(LONG, text.batch, "text_batch") \
  FIELD(LONG,      text.sequence, "text_sequence") FIELD(LONG, text.vocabulary, "text_vocabulary") \
  FIELD(TEXT,      text.input,    "text_input") FIELD(TEXT, text.target, "text_target") \
  FIELD(TEXT,      text.ends,     "text_ends") FIELD(TEXT, text.rating, "text_rating")

#define SLOTS_FIELDS(FIELD)                 \
  FIELD(INT,       n,             "slots") FIELD(LONG, bytes, "slot_bytes")

#define WORK_OF_STAGE_FIELDS(FIELD)         \
  FIELD(INT,       stage,         "stage") FIELD(FLAG, of_weights, "of_weights")

#define FUNCTION_FIELDS(FIELD)              \
  FIELD(PHASE,     phase,         "phase")  \
  FIELD(INT,       count,         "modules") \
  FIELD(FLAG,      upward,        "upward") \
  FIELD(INT,       stage,         "stage")  \
  FIELD(FLAG,      of_weights,    "of_weights") \
  FIELD(FLAG,      is_part,       "part")   \
  FIELD(FUNCTION,  body,          "of")

/* In addition to the parts of a line without a word: `to dp=S(0)` of a redistribute. */
#define OP_FIELDS(FIELD)                    \
  FIELD(TEXT,      equation,      "rule")   \
  FIELD(INT,       custom,        "operator") \
  FIELD(REAL,      scalar,        "scalar") \
  FIELD(REAL,      softcap,       "softcap") \
  FIELD(BITS,      dims,          "dims")   \
  FIELD(FLAG,      keepdim,       "kept")   \
  FIELD(FUNCTION,  function,      "calls")  \
  FIELD(ITERATION, iteration,     "for")    \
  FIELD(INT,       first,         "first")  \
  FIELD(INT,       ahead,         "ahead")  \
  FIELD(OP,        awaits,        "of")     \
  FIELD(TYPE,      type,          "type")   \
  FIELD(FLAG,      typed,         "typed")  \
  FIELD(TYPE,      backward_type, "backward_type") \
  FIELD(REDUCTION, reduction,     "reduction") \
  FIELD(FLAG,      finishes,      "finishes") \
  FIELD(GROUP,     group,         "over")   \
  FIELD(INT,       dim,           "dim")    \
  FIELD(INT,       dim_to,        "dim_to") \
  FIELD(INT,       exchange,      "exchange") \
  FIELD(FLAG,      continues,     "continues") \
  FIELD(FLAG,      last_batch,    "last_batch") \
  FIELD(FLAG,      held,          "held")   \
  FIELD(FLAG,      packed,        "packed") \
  FIELD(VALUE,     buffer,        "buffer") \
  FIELD(FLAG,      of_unit,       "of_unit") \
  FIELD(INT,       unit,          "unit")   \
  FIELD(TEXT,      why,           "why")    \
  FIELD(TEXT,      part_of,       "part_of") \
  FIELD(TEXT,      node,          "node")   \
  FIELD(FLAG,      constant,      "constant") \
  FIELD(FLAG,      recomputed,    "again")  \
  FIELD(INT,       piece,         "piece")  \
  FIELD(INT,       pieces,        "of_pieces") \
  FIELD(INT,       piece_dim,     "piece_dim") \
  FIELD(GROUP,     piece_group,   "piece_over") \
  FIELD(LONG,      stream_growth, "stream_growth") \
  FIELD(PHASE,     phase,         "phase")  \
  FIELD(INT,       line,          "line")   \
  FIELD(MODULE,    module,        "in")

#define SCHEDULED_FIELDS(FIELD)             \
  FIELD(FLAG,      overlapped,    "overlapped") \
  FIELD(FLAG,      awaited_next_iteration, "awaited_next_iteration") \
  FIELD(FLAG,      issued_in_last_iteration, "issued_in_last_iteration") \
  FIELD(FLAG,      has_chained,   "has_chained") \
  FIELD(INT,       prefetch_distance, "prefetch_distance") \
  FIELD(OP,        chained_to,    "chained_to") \
  FIELD(INT,       event,         "event")  \
  FIELD(LONG,      time,          "time")   \
  FIELD(LONG,      exposed,       "exposed")

#define STAGES_FIELDS(FIELD)                \
  FIELD(VALUE,     space,         "over")   \
  FIELD(INT,       rows,          "rows")   \
  FIELD(INT,       count,         "times")

#define TASK_FIELDS(FIELD)                  \
  FIELD(FLAG,      of_row,        "of_row") \
  FIELD(REACH,     reach,         "reach")  \
  FIELD(INT,       stage,         "stage")

/* After the role, the type, the shape and the layout. */
#define VALUE_FIELDS(FIELD)                 \
  FIELD(ORDER,     order,         "order")  \
  FIELD(VALUE,     of,            "of")     \
  FIELD(TYPE,      used_as,       "used_as") \
  FIELD(TYPE,      reduced_as,    "reduced_as") \
  FIELD(FLAG,      is_output,     "output") \
  FIELD(INT,       rows,          "output_rows") \
  FIELD(FLAG,      stored,        "stored") \
  FIELD(FLAG,      is_separate,   "apart")  \
  FIELD(FLAG,      frozen,        "frozen") \
  FIELD(FLAG,      on_other_stages, "elsewhere") \
  FIELD(INT,       pieces,        "in_pieces") \
  FIELD(VALUE,     counts,        "counted_by") \
  FIELD(TEXT,      alias,         "alias")  \
  FIELD(TEXT,      why,           "kept_for") \
  FIELD(INT,       file_dim,      "file_dim") \
  FIELD(LONG,      file_first,    "file_first") \
  FIELD(LONG,      file_size,     "file_size") \
  FIELD(INT,       alias_dim,     "alias_dim") \
  FIELD(LONG,      alias_first,   "alias_first") \
  FIELD(LONG,      alias_size,    "alias_size") \
  FIELD(INIT,      init.kind,     "init")   \
  FIELD(REAL,      init.a,        "init_a") \
  FIELD(REAL,      init.b,        "init_b") \
  FIELD(REAL,      init.low,      "init_low") FIELD(REAL, init.high, "init_high") \
  FIELD(INT,       unit,          "unit") \
  FIELD(INT,       optimizer,     "optimizer") \
  FIELD(INT,       style,         "style")  \
  FIELD(OP,        op,            "made_by") \
  FIELD(INT,       line,          "line") \
  FIELD(MODULE,    module,        "in")

#define IN_LOOP_FIELDS(FIELD)               \
  FIELD(VALUE,     stack,        "stack") \
  FIELD(INT,       index,         "index")  \
  FIELD(MODULE,    list,          "list")   \
  FIELD(VALUE,     sibling,       "sibling") \
  FIELD(INT,       step,          "step")   \
  FIELD(VALUE,     initial,       "initial")

#define CONCAT_SLICE_FIELDS(FIELD)             \
  FIELD(VALUE,     buffer,        "part_of_wide") \
  FIELD(LONG,      first,         "begins_at") \
  FIELD(LONG,      row,           "rows_of") \
  FIELD(LONG,      pitch,         "rows_apart")

#define ALLOCATION_FIELDS(FIELD)            \
  FIELD(VALUE,     storage,       "in_place_of") \
  FIELD(LONG,      offset,        "at")     \
  FIELD(INT,       in_flight,     "in_flight") \
  FIELD(INT,       first,         "lives_from") FIELD(INT, last, "to_point") \
  FIELD(LONG,      slice,         "slices_of") \
  FIELD(INT,       depth,         "kept_values") \
  FIELD(INT,       made,          "made_at") \
  FIELD(FUNCTION,  made_by,       "made_in")

/* The characters of a name, and of a text, without quotes, in addition to letters and digits. */
#define NAME_SIGNS      "_.-/"
#define TEXT_SIGNS      "_.-/,()*!@:+>"

/* The words of enums, in their order. */
#define ROLE_WORDS                                                                                 \
  "activation", "parameter", "gradient", "sums", "state", "batch", "cache", "loss", "norm"
#define TYPE_WORDS      "f32", "bf16", "i32", "i64", "bool", "i8", "nf4", "e4m3", "e5m2", "f64"
#define PHASE_WORDS     "forward", "backward", "update", "gather", "decode", "constants", "count"
#define REDUCTION_WORDS "sum", "max", "min"
#define ITERATION_WORDS "first", "last", "next", "previous", "in_last"
#define INIT_WORDS \
  "constant", "uniform", "normal", "tokens", "present", "normal_rows", "trunc_normal", \
  "orthogonal", "sparse", "dirac", "nested"
#define LAST_BATCH_WORDS "not_given", "smaller", "dropped"
#define PREFETCH_WORDS  "where_it_pays", "nothing", "all"
#define BUCKETING_WORDS "by_unit", "greedy", "none"
#define WORK_WORDS      "forward", "backward", "weights"
#define REACH_WORDS     "none", "some", "row", "column", "rows", "unfit"

/* RECORD(name, type, rows) of each. */
#define RECORDS(RECORD)                                           \
  RECORD(device,     struct device,          DEVICE_FIELDS)       \
  RECORD(cluster,    struct cluster,         CLUSTER_FIELDS)      \
  RECORD(module,     struct module,          MODULE_FIELDS)       \
  RECORD(unit,       struct unit,            UNIT_FIELDS)         \
  RECORD(call,       struct call,            CALL_FIELDS)         \
  RECORD(style,      struct style,           STYLE_FIELDS)        \
  RECORD(custom,     struct custom,          CUSTOM_FIELDS)       \
  RECORD(move,       struct move,            MOVE_FIELDS)         \
  RECORD(async,      struct async,           ASYNC_FIELDS)        \
  RECORD(result,     struct async_tp_result, RESULT_FIELDS)       \
  RECORD(index_use,  struct index_use,       INDEX_USE_FIELDS)    \
  RECORD(optimizer,  struct optimizer,       OPTIMIZER_FIELDS)    \
  RECORD(update_step, struct update_step,    UPDATE_STEP_FIELDS)  \
  RECORD(graph,      struct graph,           GRAPH_FIELDS)        \
  RECORD(early_end,  struct early_end,       EARLY_END_FIELDS)    \
  RECORD(options,    struct plan_options,    OPTIONS_FIELDS)      \
  RECORD(arena,      struct memory_plan,     ARENA_FIELDS)        \
  RECORD(function,   struct function,        FUNCTION_FIELDS)     \
  RECORD(op,         struct op,              OP_FIELDS)           \
  RECORD(pipeline,   struct pipeline_stages, PIPELINE_FIELDS)     \
  RECORD(all_stages, struct all_stages,      ALL_STAGES_FIELDS)   \
  RECORD(slots,      struct slots,           SLOTS_FIELDS)        \
  RECORD(work_of_stage, struct work_of_stage, WORK_OF_STAGE_FIELDS) \
  RECORD(scheduled,  struct scheduled,       SCHEDULED_FIELDS)    \
  RECORD(stages,     struct stages,          STAGES_FIELDS)       \
  RECORD(task,       struct task,            TASK_FIELDS)         \
  RECORD(value,      struct value,           VALUE_FIELDS)        \
  RECORD(in_loop,    struct in_loop,         IN_LOOP_FIELDS)      \
  RECORD(concat_slice,  struct concat_slice,       CONCAT_SLICE_FIELDS)    \
  RECORD(allocation, struct allocation,      ALLOCATION_FIELDS)

/* LINE(word, of, array, type, record, name, usual) of each line that is the word, a name and the
   fields of a record: one for each of of->array. name: NAMED(its member) or NAMELESS; usual: the
   record with the name `name` and the number i, whose fields are left out. */
#define LINES(LINE)                                                                           \
  LINE(module,   graph, module, struct module, module, NAMED(path), usual_module(name, i))    \
  LINE(unit,     graph, unit, struct unit, unit, NAMED(name),                                 \
       ((struct unit){.name = name, .module = NONE}))                                         \
  LINE(function, graph, function, struct function, function, NAMED(name),                     \
       ((struct function){.name = name, .count = 1, .stage = NONE}))                          \
  LINE(async_tp, plan_options, async, struct async, async, NAMELESS,                          \
       ((struct async){.module = NONE}))                                                      \
  LINE(cut,      graph, async_tp_result, struct async_tp_result, result, NAMELESS,            \
       ((struct async_tp_result){.op = NONE}))                                                \
  LINE(ended_early, graph, ended, struct early_end, early_end, NAMED(where),                  \
       ((struct early_end){.where = name, .what = "", .unit = ""}))

#endif
