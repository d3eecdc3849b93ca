/* driver.h: the command line, and the files of a program. */
#ifndef TPGEN_DRIVER_H
#define TPGEN_DRIVER_H

#include "util/util.h"
#include "ir/ir.h"
#include "dump/dump.h"
#include "pipeline/pipeline.h"
#include "sharding/sharding.h"
#include "target/target.h"
#include "lua/lua.h"
#include "auto/auto.h"
#include "graph_passes/graph_passes.h"
#include "function_passes/function_passes.h"
#include "naming/naming.h"
#include "emit/emit.h"
#include "report/report.h"
#include "check/check.h"
#include "search/search.h"

/* ------------------------------------------------------------------------------- calibration.c */

/* --calibrate: writes the program that measures a machine; then ends tpgen. */
void write_calibration(void);

/* ---------------------------------------------------------------------------------- evaluate.c */

/* The passes, without files, and the figures of the program: of a candidate of a search. passes:
   run_all(). */
void evaluate_program(struct evaluated *to, void (*passes)(void (*finish)(void)));

/* ------------------------------------------------------------------------------ explain_cost.c */

/* --explain-cost: prints the alternatives of what is decided about a value or a module, each with
   the step that it would have made; then ends tpgen. */
void explain_cost(void);

/* -------------------------------------------------------------------------------- move_query.c */

/* --move: prints the steps and the bytes that move a tensor, as text or, with --json, as JSON; then
   ends tpgen. */
void run_move_query(void);

/* ----------------------------------------------------------------------------- model_library.c */

/* The name of the library that is requested beside the program, or NULL. A wrong name is an
   error. */
const char *model_library(void);
/* The library's text in the program's CMake file, or "". */
char *library_build(void);
/* Its files, except the runtime's; tensors: those of a class whose names are known. */
void add_library_files(const struct stacks *tensors);

/* ----------------------------------------------------------------------------- parallel_plan.c */

/* --search: sets the definitions of the command line to the best of the settings that the plan says
   may vary. Ends tpgen where nothing fits or no program is asked for. passes: run_all(). */
void search_settings(void (*passes)(void (*finish)(void)));
/* After the pass `lua`: the same for train's parallel = auto{...}; the plan is read again. */
void search_parallel_plan(void (*passes)(void (*finish)(void)));
/* What a search found; NULL: nothing was searched. */
const struct found *found_plan(void);

/* --------------------------------------------------------------------------------- plan_help.c */

/* tpgen PLAN --help: prints the settings of the plan; then ends tpgen. */
void help_with_plan(void);

/* ----------------------------------------------------------------------------------- program.c */

/* The files of the graph's ranks; appends the step of each rank, "0:step 1:step_1". And the files
   that all ranks share. */
void emit_steps(struct buffer *programs);
void emit_rest(const struct buffer *programs);
/* Whether the program has a product for which oneDNN pays; in a pipeline, whether that of any place
   has one. */
bool multiplies_by_onednn(void);
/* Of a program on tokens, with labels that may be -100; see struct text_inputs. */
struct text_inputs text_inputs(void);

/* ----------------------------------------------------------------------------- runtime_files.c */

/* Adds the runtime's files that the program uses, after all of its own. */
void add_runtime(void);

/* ------------------------------------------------------------------------------ report_query.c */

/* --report FOLDER and --compare FOLDER FOLDER: writes the page or prints the comparison; then ends
   tpgen. */
void run_report_query(void);
bool is_folder(const char *path);

/* ---------------------------------------------------------------------------- schedule_query.c */

/* --schedule: prints a pipeline's schedule as CSV, with --lowered the actions of its ranks; then
   ends tpgen. */
void run_schedule_query(void);

/* -------------------------------------------------------------------------------- placements.c */

/* Decides the placements that auto() asks for: styles and units, after the pass `lua`. passes: as
   for decide_reductions(), from the pass `plan` on. */
void decide_placements(void (*passes)(void));

/* ------------------------------------------------------------------------------------ caches.c */

/* Decides what the caches of a program keep, before the pass `cut_time`. passes: as for
   decide_reductions(), from that pass on. */
void decide_caches(void (*passes)(void));

/* -------------------------------------------------------------------------------- reductions.c */

/* Decides where gradients of several batches are reduced, before the pass `optimize`. passes: runs
   that pass and the rest, and calls note_trial() for each finished program. */
void decide_reductions(void (*passes)(void));

/* ----------------------------------------------------------------------------- recomputation.c */

/* With checkpoint = {memory = ...}: the levels of modules for the pass `recompute`. passes: as for
   decide_reductions(), from that pass on. */
void decide_recomputation(void (*passes)(void));

/* ------------------------------------------------------------------------------ this_machine.c */

/* Lets plans read the device.json of this machine. Measures the machine, if there is none and the
   command line says --cluster this. */
void know_this_machine(void);

/* ------------------------------------------------------------------------------------ trials.c */

/* What the rest of the passes leaves if they run from here. */
struct outcome {
  bool ended;                    /* without an error */
  int64_t memory;                /* of a rank, the most of all places of a pipeline */
  double seconds;                /* of a step by the model */
  double bytes;                  /* with count_received(): that a rank receives in a step */
  double received;               /* the same; those over slow links count more */
  uint64_t hash[MOST_AGAIN + 1]; /* by level: note_level() */
};
struct started_trial {
  int process;
  struct outcome *figures; /* that both processes see; NULL: none was begun */
};
/* Runs the passes in a process of its own, beside this one; and waits for its figures. */
struct started_trial begin_trial_of(void (*passes)(void));
struct outcome end_trial(struct started_trial run);
/* Whether this is such a process. */
bool in_trial(void);
/* There: counts the bytes that ranks receive, too. */
void count_received(void);
/* There: the values that are made again by a level. */
void note_level(int level, uint64_t hash);
/* In that process: takes note of a finished program; and, if there is a pipeline and all its places
   are noted, of their step. */
void note_trial(void);
void note_trial_of_pipeline(void);

/* -------------------------------------------------------------------------------- run_passes.c */

/* Runs the passes from the first to the last, both included. After each one comes its check, and
   its dump, which ends tpgen if --dump asks for it. */
void run_passes(enum pass first, enum pass last);
/* From `propagate` on, in a trial. */
void try_from_propagate(void);
/* From the plan on. */
void run_until(enum pass last);
/* All passes: from the plan on or, with --from, after the pass whose dump is read. `finish` is
   called for the finished program; of a pipeline, for that of each of its places, which have a
   graph each after the pass `redistribute`. */
void run_all(void (*finish)(void));

/* -------------------------------------------------------------------------------------- ways.c */

/* Before the passes of a candidate: where its figures go. */
void begin_ways(struct evaluated *to);
/* Of a candidate: whether this process goes on with whole sums, for which a rank has so much
   memory. Another process goes on with gradients that are reduced each, and ends before. */
bool goes_on_with_whole_sums(int64_t limit);
/* Keeps the figures, unless those of the other process are better. */
void keep_better_way(const struct evaluated *e);

#endif
