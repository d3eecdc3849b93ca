/* report.h: plan.txt, plan.json, trace.json and --explain. */
#ifndef TPGEN_REPORT_H
#define TPGEN_REPORT_H

#include "util/util.h"
#include "ir/ir.h"
#include "sharding/sharding.h"
#include "target/target.h"
#include "graph_passes/graph_passes.h"
#include "function_passes/function_passes.h"
#include "naming/naming.h"
#include "emit/emit.h"
#include "lua/lua.h"

#include <jansson.h>

/* One operation as it ran, in picoseconds from the step's begin. */
struct ran {
  int op, module;                        /* module: the number of the loop's, or NONE */
  enum { COMPUTES, COPIES, MOVES } what; /* COPIES: before and after a bucket's collective */
  int stream;                            /* NONE: the stream of arithmetic; else that of this
                                            group */
  int64_t begin, end;
  int64_t waited; /* how long the arithmetic has waited for it */
};

/* A step of rank 0; with several batches `ran` has the last one, then the update. */
struct simulated {
  int n, room;
  struct ran *ran;
  double step, computing, moving, waiting; /* seconds; moving: all collectives together */
  double starting; /* of them those for which the GPU waits until the host has started a kernel; */
  double slowest;  /* and those that the slowest rank takes longer */
  double in_graph; /* the step as one graph, where it does not; 0: launches were not measured */
  /* Picoseconds of one run: of each function of a phase, and of what a phase waits for
     collectives. */
  int64_t *took, waited[PHASES];
  double *took_all; /* of each function of a phase: all of its runs in a step */
};

/* The figures of a step by which plans are compared. */
struct step_figures {
  double seconds, exposed, idle; /* idle: of stages of a pipeline; a mean of the ranks */
  double tokens, mfu;            /* 0: not known */
  int64_t bytes;                 /* of the rank that needs most */
};

/* The figures of a model, of a program of one rank. */
struct model_figures {
  double parameters, in_layers, experts; /* elements */
  int layers;                            /* modules of its longest list */
  double places;                         /* experts of a token; 0: there are none */
  double input, flops;                   /* bytes of a layer's input; operations of a step */
  double compute_bytes, gradient_bytes;  /* of parameters where they compute; gradients that move */
  double parameter_memory, gradient_memory, state_memory, activations; /* bytes */
  double batch_seconds, update_seconds;
  double outside_seconds; /* those of batch_seconds that are not of its layers */
};

struct json_t;

/* A redistribution as it is in the program. A bucket of all-reduces has its own chain. */
struct chain {
  int times; /* it runs in a step of the program */
  int nstep, room, *step;
};

/* ---------------------------------------------------------------------------------- async_tp.c */

/* Adds to plan.txt the outcome for each collective that async_tp asks for; the same for
   plan.json. */
void put_async_tp(struct buffer *b);
struct json_t *json_async_tp(void);

/* ------------------------------------------------------------------------------------ chains.c */

/* All chains of the program, in the order in which they begin; *n: how many. */
const struct chain *find_chains(int *n);
const struct op *first_step(const struct chain *c);
const struct op *last_step(const struct chain *c);
/* The value that is moved; its layout before, and after. */
const struct value *moved_value(const struct chain *c);
struct layout layout_before(const struct chain *c);
struct layout layout_reached(const struct chain *c);
/* Steps that move something or put it in its place, without the packing before and after. */
int count_steps(const struct chain *c);
/* The lower bound of its bytes, for a chunk its share; NONE if it is not known: for a bucket,
   and for strided shards. */
int64_t bound_of(const struct chain *c);
/* Its seconds by the cost model, or 0 if the model has another way. */
double seconds_of(const struct chain *c);

/* ----------------------------------------------------------------------------- communication.c */

/* Adds to plan.txt the totals of the collectives' traffic, by kind and by function. */
void put_communication(struct buffer *b);

/* ----------------------------------------------------------------------------------- compare.c */

/* Prints what differs between two programs: of report_data_of() one, with "other", the second, and
   "folders", the names of both. */
void print_comparison(const json_t *data);

/* ----------------------------------------------------------------------------------- details.c */

/* --report: adds to plan.json what the page shows and plan.txt has no room for; the same for that
   of a pipeline. */
void add_plan_details(json_t *whole);
void add_pipeline_details(json_t *whole, const struct pipeline *p, const struct stage_times *times);
/* The text of plan.json: with --report rows of numbers are on one line. */
char *plan_json_text(const json_t *whole);

/* ----------------------------------------------------------------------------------- explain.c */

/* --explain NAME: records the layouts and moves of the values of that name, with reasons, from
   the flat program before `outline`. */
void gather_explained(void);
/* Prints it, and ends tpgen. */
void run_explain(void);

/* ----------------------------------------------------------------------------------- figures.c */

/* Of the finished program; of a pipeline, when each stage is noted. */
struct step_figures step_figures(void);
struct model_figures model_figures(void);

/* ------------------------------------------------------------------------------------ format.c */

json_t *json_shape(struct shape s);
/* {"dp": "S(0)", "tp": "R"} */
json_t *json_layout(struct layout layout);
/* Adds "file" for a line that is not in the plan itself. */
void add_file_of(json_t *object, int line);
/* The name of the value in reports. */
const char *shown_name(int value);
/* A collective's kind; an exchange in which each rank has at most one partner is a permute. */
const char *kind_of(const struct op *op);
/* "a_b" of a collective; of another step, the mesh dimensions on which it changes the layout. */
char *over_text(const struct op *op);
/* "S(0) R -> R R" of a step; "" for a mere packing. */
char *step_layouts(const struct op *op);
char *seconds_text(double seconds);
/* The value that a rank brings to a collective; for an exchange, whose ranks differ, the value of
   the rank that sends most. */
int64_t bytes_brought(const struct op *op);

/* -------------------------------------------------------------------------------------- idle.c */

/* The note about a dimension of the mesh along which nothing is cut, or NULL; and all notes, also
   those of the front end, on standard error. */
char *idle_text(int dim);
void print_notes(void);

/* ------------------------------------------------------------------------------------ limits.c */

/* The plan's error if a step has more collectives than the plan expects. */
void check_expectations(void);
/* The memory of a rank: what device_mesh says, or what its device has; 0: none is known. */
int64_t memory_limit(void);
/* The plan's error if a rank needs more memory than device_mesh gives it. */
void check_memory_limit(void);

/* ------------------------------------------------------------------------------------- order.c */

/* Adds to plan.txt the order in which collectives are issued. */
void put_order(struct buffer *b);

/* --------------------------------------------------------------------------- optimizers_text.c */

void put_optimizers_of_plan(struct buffer *b);

/* --------------------------------------------------------------------------------- plan_json.c */

/* plan.json. */
void report_json(struct buffer *b);
/* The members that every plan.json has. */
struct json_t *json_head(void);

/* -------------------------------------------------------------------------------------- page.c */

/* --report: adds report.html, after all other files. */
void add_report_page(void);
/* What the page shows of the files in a folder: {"plan":, "stages":, "search":}; "metrics" may be
   added, and "other", for a comparison. Ends tpgen where the folder has none. */
json_t *report_data_of(const char *folder);
/* The lines of a run's --metrics file. */
json_t *read_metrics(const char *path);
/* A member of a plan.json; 0 and "" where there is none. And the memory of the rank that has most:
   in a pipeline, of all stages. */
double figure_of(const json_t *object, const char *name);
const char *string_of(const json_t *object, const char *name);
double memory_of_plan(const json_t *plan);
char *page_text(const json_t *data);

/* ------------------------------------------------------------------------------ pipeline_plan.c */

/* Takes note of the figures of a finished stage: of the ranks at one place of a pipeline. */
void note_stage(void);
/* The graph's ranks run the same program as those at another place, for other layers. */
void note_equal_stage(int other);
/* When each stage is noted: their times, in picoseconds; and plan.txt of the pipeline. */
struct stage_times *times_of_stages(const struct pipeline *p);
void report_pipeline(struct buffer *b);
/* The same: the step, in seconds. */
double pipeline_seconds(void);
void report_pipeline_json(struct buffer *b);
struct step_figures pipeline_figures(void);

/* ------------------------------------------------------------------------------ pipeline_text.c */

/* The stage of a pipeline, if the plan has one, with its sends and receives. */
void put_pipeline(struct buffer *b);

/* ----------------------------------------------------------------------------- pipeline_trace.c */

/* The file trace.json with all ranks of a pipeline, if --trace asks for it; when each stage is
   noted. */
void add_pipeline_trace(void);

/* --------------------------------------------------------------------------------- plan_text.c */

/* The head of a step file: mesh, parameters, communication, a line each. */
char *summary_text(int rank);
/* plan.txt; its first lines. */
void report_text(struct buffer *b);
void put_plan_head(struct buffer *b);
/* The parameters; those with equal rows are a stack. */
struct stacks find_parameters(void);
/* The caches, those of equal modules together; the bytes that a rank has of them. */
struct stacks find_caches(void);
int64_t bytes_of_caches(const struct stack *f);
char *asked_by(int value);

/* ---------------------------------------------------------------------------------- simulate.c */

/* For the finished program, once. */
const struct simulated *simulated(void);
/* The time of a collective, and its exposed time, averaged over its runs. */
void simulated_mean(int op, int64_t *takes, int64_t *waited);
/* The share of a rank's peak that it reaches, by step_flops; 0: not known. */
double step_mfu(void);

/* --------------------------------------------------------------------------------- rows_text.c */

/* Adds to plan.txt the rows by expert of a rank. */
void put_rows_by_expert(struct buffer *b);
/* The same for plan.json; empty where no experts are cut. */
json_t *json_rows_by_expert(void);

/* ----------------------------------------------------------------------------------- streams.c */

/* Adds to plan.txt the stream of each collective, and the operations that overlap with it. */
void put_streams(struct buffer *b);

/* ---------------------------------------------------------------------------------- timeline.c */

/* "2.50 TFLOP/s"; the line about the device and its links. */
char *scaled_text(double x, const char *unit);
char *duration_text(double seconds);
/* Adds to plan.txt the seconds that the slowest rank takes longer; nothing if there are none. */
void put_slowest(struct buffer *b, double seconds, double step);
/* The type in which the products of a step compute. */
const char *arithmetic_text(void);
void put_machine(struct buffer *b);
/* Adds to plan.txt the time of a step, and a chart of its operations; plan.json gets the figures
   without the chart. */
void put_step(struct buffer *b);
struct json_t *json_step(void);

/* ------------------------------------------------------------------------------------- trace.c */

/* The file trace.json, if --trace asks for it. */
void add_trace(void);

/* --------------------------------------------------------------------------------------- uses.c */

/* The bytes between uses of memory in a simulated step, from a beginning on: the operation of this
   module of a loop runs; and the bytes since the value's last use. */
void begin_uses(void);
void note_use(const struct op *op, int module);
double bytes_since(void *module, int value);

#endif
