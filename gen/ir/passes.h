/* passes.h: the passes in the order in which they run; every other list of them expands from here,
   and so do the prototypes of their functions (graph.h). To add a pass: a row here, and its file.

     PASS(NAME, name)

   name       The function, void name(void), and what --dump= and messages call the pass.
   NAME       The same in capitals, of enum pass: PASS_NAME. */
PASS(LUA, lua)
PASS(ABSORB, absorb)
PASS(CUT_TIME, cut_time)
PASS(PLAN, plan)
PASS(PROPAGATE, propagate)
PASS(GRAD, grad)
PASS(OPTIMIZE, optimize)
PASS(STAGES, stages)
PASS(RING, ring)
PASS(FLOAT8, float8)
PASS(REDISTRIBUTE, redistribute)
PASS(CLAMP_TO_CAPACITY, clamp_to_capacity)
PASS(FOLD_UPCASTS, fold_upcasts)
PASS(HOIST_CONSTANTS, hoist_constants)
PASS(RECOMPUTE, recompute)
PASS(ASSIGN_DIM_ORDER, assign_dim_order)
PASS(OUTLINE, outline)
PASS(ASYNC_TP, async_tp)
PASS(BUCKET, bucket)
PASS(FUSE, fuse)
PASS(EPILOGUE, epilogue)
PASS(MERGE_PRODUCTS, merge_products)
PASS(SCHEDULE, schedule)
PASS(KERNEL_FORMS, kernel_forms)
PASS(MEMORY, memory)
