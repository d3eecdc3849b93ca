/* main.c: tpgen's table of contents. */
#include "driver/driver.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: tpgen PLAN.lua -o DIRECTORY [options]\n"
    "Writes one program per rank for the model and the parallel plan in PLAN.lua.\n\n"
    "  -o DIRECTORY          where the programs go; made if it isn't there\n"
    "  --target cpu|cuda     C with CBLAS and MPI (the default), or CUDA C++ with cuBLASLt and\n"
    "                        NCCL\n"
    "  -D NAME=VALUE         what the plan reads as args.NAME; PLAN.lua --help lists the\n"
    "                        names and the forms of values\n"
    "  --ranks FIRST-LAST    write only these ranks' programs\n"
    "  --check-finite        the programs look for the first value that is not finite, and say\n"
    "                        which it is; they are slower\n"
    "  --emit library        write a library, too: the model as functions for C and Fortran\n"
    "  --emit python         write it with a module for Python\n"
    "  --library-name NAME   what its functions and files begin with; by default model\n"
    "  --search              find the settings of the plan that are quickest on a cluster; -D\n"
    "                        pins one, and -o writes the programs of the best (docs/search.md)\n"
    "  --cluster PRESET[:NODES]|FILE.json|this\n"
    "                        where the ranks run: dgx-h100:16 is 16 nodes, this is this machine,\n"
    "                        which is measured the first time\n"
    "  --search-time S       end the search after so many seconds, with the best so far\n"
    "  --trace               write trace.json, too: the simulated step, for Perfetto\n"
    "  --report              write report.html, too: the plan to look at in a browser\n"
    "  --check               write nothing: fail if DIRECTORY is not what the plan gives\n"
    "  --from=PASS           the plan is a file that --dump=PASS printed: go on from there\n"
    "  --dump=PASS           print the graph after a pass:";

static const char move_usage[] =
    "usage: tpgen --move 'f32[16384,8192] on a=2,b=4: S(0) S(0) -> S(1) S(1)' [options]\n"
    "Prints the steps that take a tensor on a mesh from one layout to another, and the bytes that\n"
    "each rank sends and receives. A layout is a placement for each dimension of the mesh: R, P,\n"
    "P(max), P(min), S(0), or S(0)[1] with its order among those that cut the same dimension.\n\n"
    "  --planner fastest|greedy\n"
    "                        the quickest way (the default), or step by step as DTensor goes\n"
    "  --link NAME=BANDWIDTH,LATENCY\n"
    "                        of a dimension of the mesh, in bytes a second and in seconds\n"
    "  --json                for programs: steps, sent, received, bound\n";

static const char calibrate_usage[] =
    "\nusage: tpgen --calibrate [--target cpu|cuda] -o DIRECTORY\n"
    "Writes a program that measures the machine on which DIRECTORY/run.sh runs, or its GPUs, and\n"
    "leaves device.json there. A plan takes it in the place of a device's name:\n"
    "-D device=device.json.\n";

static const char report_usage[] =
    "\nusage: tpgen --report DIRECTORY [--metrics FILE] [-o FILE.html]\n"
    "Writes a page of a program that tpgen wrote with --report, by default DIRECTORY/run.html, "
    "with\n"
    "the steps of a run: FILE is that of run.sh --metrics.\n"
    "\nusage: tpgen --compare DIRECTORY DIRECTORY [-o FILE.html]\n"
    "Prints what differs between two programs; and writes a page with both.\n";

static const char schedule_usage[] =
    "\nusage: tpgen --schedule NAME|FILE.csv [options]\n"
    "Prints the schedule of a pipeline: a row for each rank, an action in each field, as\n"
    "torch.distributed.pipelining writes it; 2F0 is the forward of stage 2 for micro-batch 0. A "
    "file's\n"
    "schedule is checked.\n\n"
    "  --ranks-pp N          the ranks of the pipeline\n"
    "  --stages N            the stages of a rank (1)\n"
    "  --microbatches N\n"
    "  --lowered             with sends, receives, parameters and gradients\n";

static void print_usage(FILE *to)
{
  fputs(usage, to);
  for (int i = 0; i < PASS_COUNT; i++)
    fprintf(to, "%s%s", i % 4 ? " " : "\n                        ", pass_name[i]);
  fputs(
      "\n  --explain NAME        print what becomes of a value, and why\n"
      "  --explain-cost NAME   print the alternatives of what is decided about a value or a "
      "module,\n"
      "                        and the step that each would have made\n"
      "  --reference[=types]   print the reference of the plan language, or its types for editors\n"
      "  --help, --version     tpgen PLAN.lua --help lists the settings of a plan, for -D\n\n",
      to);
  fputs(move_usage, to);
  fputs(schedule_usage, to);
  fputs(calibrate_usage, to);
  fputs(report_usage, to);
}

static void define(char *arg)
{
  char *equals = strchr(arg, '=');
  if (!equals || equals == arg) usage_error(2, "-D %s: write -D name=value", arg);
  *equals = 0;
  for (int i = 0; i < options.ndefinition; i++)
    if (!strcmp(options.definition[i].name, arg))
      usage_error(2, "-D %s=%s and -D %s=%s: give one of them", arg, options.definition[i].value,
                  arg, equals + 1);
  int n = options.ndefinition++;
  options.definition = realloc(options.definition, (size_t)(n + 1) * sizeof *options.definition);
  if (!options.definition) usage_error(3, "no memory");
  options.definition[n] = (struct definition){arg, equals + 1};
}

static void choose_target(const char *name)
{
  char names[256] = ""; /* the arena does not exist yet */
  options.target_given = true;
  if (set_target(name)) return;
  for (int i = 0; i < TARGETS; i++) {
    size_t n = strlen(names);
    const char *comma = !i ? "" : i + 1 < TARGETS ? ", " : " and ";
    snprintf(names + n, sizeof names - n, "%s%s", comma, targets[i].name);
  }
  usage_error(2, "--target %s: the targets are %s", name, names);
}

/* Reads the digits at *at as a rank and moves past them. -1: not a rank. */
static int read_rank(const char **at)
{
  char *end;
  errno = 0;
  long n = **at >= '0' && **at <= '9' ? strtol(*at, &end, 10) : -1;
  if (n < 0 || errno || n >= INT32_MAX) return -1;
  *at = end;
  return (int)n;
}

static void set_ranks(const char *range)
{
  const char *at = range;
  int first = read_rank(&at), last = first;
  if (*at == '-') at++, last = read_rank(&at);
  if (first < 0 || last < first || *at)
    usage_error(2, "--ranks %s: write --ranks 0-7: ranks are counted from 0 to %d", range,
                INT32_MAX - 1);
  options.first_rank = first;
  options.last_rank = last;
}

static int counted(const char *option, const char *number)
{
  const char *at = number;
  const int n = read_rank(&at);
  if (n < 1 || *at)
    usage_error(2, "--%s %s: it must be a whole number from 1 to %d", option, number,
                INT32_MAX - 1);
  return n;
}

static void set_search_time(const char *seconds)
{
  char *end;
  options.search_time = strtod(seconds, &end);
  if (end == seconds || *end || !(options.search_time > 0) || options.search_time > 1e6)
    usage_error(2, "--search-time %s: it must be a number of seconds, above 0 and at most 1e6",
                seconds);
}

static void set_cluster_option(const char *cluster)
{
  if (!*cluster) usage_error(2, "--cluster: say which, as in --cluster dgx-h100:16");
  options.cluster = cluster;
}

static void set_planner(const char *name)
{
  options.planner = name;
  if (strcmp(name, "greedy") && strcmp(name, "fastest"))
    usage_error(2, "--planner %s: the planners are fastest and greedy", name);
}

static void set_emit(const char *what)
{
  options.emit = what;
  if (strcmp(what, "program") && strcmp(what, "library") && strcmp(what, "python"))
    usage_error(2,
                "--emit %s: tpgen writes a program, and with --emit library a library, too, with "
                "--emit python one for Python",
                what);
}

static void set_reference(const char *form)
{
  options.reference = form ? form : "markdown";
  if (strcmp(options.reference, "markdown") && strcmp(options.reference, "types"))
    usage_error(2, "--reference=%s: the forms are markdown and types", form);
}

static void add_link(const char *link)
{
  int n = options.nlink++;
  options.link = realloc(options.link, (size_t)(n + 1) * sizeof *options.link);
  if (!options.link) usage_error(3, "no memory");
  options.link[n] = link;
}

static const char *known_pass(const char *option, const char *name)
{
  for (int i = 0; i < PASS_COUNT; i++)
    if (!strcmp(name, pass_name[i])) return pass_name[i];
  usage_error(2, "--%s=%s: no such pass; tpgen --help lists them", option, name);
}

static int place_of_pass(const char *name)
{
  int i = 0;
  while (strcmp(name, pass_name[i])) i++;
  return i;
}

/* "tp=2" without -D is an argument like the plan. */
static void check_one_plan(int argc, char **argv)
{
  if (optind + 1 == argc) return;
  for (int i = optind; i < argc; i++)
    if (strchr(argv[i], '=') && strchr(argv[i], '=') != argv[i] && access(argv[i], F_OK))
      usage_error(2, "%s: to set a value of the plan write -D %s", argv[i], argv[i]);
  usage_error(2, "give one plan; tpgen --help tells more");
}

static void check_search_options(void)
{
  for (int i = 0; i < options.ndefinition; i++)
    if (options.cluster && !strcmp(options.definition[i].name, "cluster"))
      usage_error(2, "-D cluster=%s and --cluster %s: give one of them",
                  options.definition[i].value, options.cluster);
}

/* Of folders that tpgen wrote. */
static void check_report_query(int argc, char **argv)
{
  if (options.dump || options.explain || options.from || options.search || options.trace ||
      options.check || options.ndefinition || options.cluster || options.emit ||
      (options.compare && (options.report || options.metrics)))
    usage_error(2,
                "--report and --compare of directories take --metrics and -o; tpgen --help tells "
                "more");
  if (!options.compare) return;
  if (optind + 2 != argc) usage_error(2, "--compare: give two directories that tpgen wrote");
  options.other = argv[optind + 1];
}

/* The remaining options must fit together: a plan, --move, --schedule or --calibrate, with the
   options of each. */
static void check_options(int argc, char **argv)
{
  bool makes = options.out || options.dump || options.explain || options.explain_cost;
  const bool takes_plan = !options.calibrate && !options.schedule && !options.move;
  if (options.cluster && (options.from || !takes_plan)) usage_error(2, "--cluster is for plans");
  if ((options.report || options.compare || options.metrics) && !takes_plan)
    usage_error(2, "--report, --compare and --metrics are for plans and what tpgen wrote");
  if (options.search_time > 0 && !takes_plan)
    usage_error(2, "--search-time is for plans whose settings are searched");
  const bool explains = options.explain || options.explain_cost;
  if (options.search && (options.from || options.dump || explains || !takes_plan))
    usage_error(2, "--search takes a plan, and has no --from, --dump or --explain");
  if (options.explain_cost && (options.out || options.from || options.dump || options.explain))
    usage_error(2, "--explain-cost takes a plan, and has no -o, --from, --dump or --explain");
  if (options.calibrate) {
    if (options.dump || explains || options.from || options.move || options.schedule ||
        options.ndefinition || options.emit || options.trace || optind != argc)
      usage_error(2, "--calibrate takes no plan, only -o and --check");
    if (!options.out) usage_error(2, "say where the program goes: -o DIRECTORY");
    return;
  }
  if (options.schedule) {
    if (makes || options.from || options.move || optind != argc)
      usage_error(2, "--schedule takes no plan, and writes nothing");
    return;
  }
  if (options.ranks_pp || options.stages || options.microbatches || options.lowered)
    usage_error(2, "--ranks-pp, --stages, --microbatches and --lowered are options of --schedule");
  if (options.move) {
    if (makes || options.from || optind != argc)
      usage_error(2, "--move takes no plan, and writes nothing");
    return;
  }
  if (options.json || options.planner || options.nlink)
    usage_error(2, "--json, --planner and --link are options of --move");
  if (options.compare || (options.report && optind + 1 == argc && is_folder(argv[optind]))) {
    check_report_query(argc, argv);
    return;
  }
  if (options.metrics) usage_error(2, "--metrics is for --report DIRECTORY");
  check_one_plan(argc, argv);
  if (options.report && !options.out)
    usage_error(2, "--report: say where report.html goes: -o DIRECTORY");
  if (options.from && options.ndefinition)
    usage_error(2, "-D is for plans: what --dump printed has its values");
  if (options.from && options.dump && place_of_pass(options.dump) < place_of_pass(options.from))
    usage_error(2, "--dump=%s: that pass runs before %s", options.dump, options.from);
  if (options.search) check_search_options();
  if (!makes && !options.search) usage_error(2, "say where the programs go: -o DIRECTORY");
}

/* One option a line. */
/* clang-format off */

static void read_options(int argc, char **argv)
{
  enum {
    TARGET = 256, RANKS, DUMP, FROM, TRACE, CHECK, FINITE, EXPLAIN, EXPLAIN_COST, MOVE, PLANNER,
    LINK, JSON, EMIT, LIBRARY_NAME, SCHEDULE, RANKS_PP, STAGES, MICROBATCHES, LOWERED, REFERENCE,
    CALIBRATE, SEARCH, SEARCH_TIME, CLUSTER, REPORT, METRICS, COMPARE, HELP, VERSION
  };
  static const struct option list[] = {
    {"target", required_argument, NULL, TARGET},
    {"ranks", required_argument, NULL, RANKS},
    {"dump", required_argument, NULL, DUMP},
    {"from", required_argument, NULL, FROM},
    {"trace", no_argument, NULL, TRACE},
    {"check", no_argument, NULL, CHECK},
    {"check-finite", no_argument, NULL, FINITE},
    {"explain", required_argument, NULL, EXPLAIN},
    {"explain-cost", required_argument, NULL, EXPLAIN_COST},
    {"move", required_argument, NULL, MOVE},
    {"planner", required_argument, NULL, PLANNER},
    {"link", required_argument, NULL, LINK},
    {"json", no_argument, NULL, JSON},
    {"emit", required_argument, NULL, EMIT},
    {"library-name", required_argument, NULL, LIBRARY_NAME},
    {"schedule", required_argument, NULL, SCHEDULE},
    {"ranks-pp", required_argument, NULL, RANKS_PP},
    {"stages", required_argument, NULL, STAGES},
    {"microbatches", required_argument, NULL, MICROBATCHES},
    {"lowered", no_argument, NULL, LOWERED},
    {"reference", optional_argument, NULL, REFERENCE},
    {"calibrate", no_argument, NULL, CALIBRATE},
    {"search", no_argument, NULL, SEARCH},
    {"search-time", required_argument, NULL, SEARCH_TIME},
    {"cluster", required_argument, NULL, CLUSTER},
    {"report", no_argument, NULL, REPORT},
    {"metrics", required_argument, NULL, METRICS},
    {"compare", no_argument, NULL, COMPARE},
    {"help", no_argument, NULL, HELP},
    {"version", no_argument, NULL, VERSION},
    {0},
  };
  opterr = 0; /* getopt's own messages would show any byte to the terminal */
  for (int c; (c = getopt_long(argc, argv, ":o:D:", list, NULL)) != -1;) {
    const char letter[] = {'-', (char)optopt, 0};
    const char *given = optopt > 0 && optopt < TARGET ? letter : argv[optind - 1];
    switch (c) {
    case 'o': options.out = optarg; break;
    case 'D': define(optarg); break;
    case TARGET: choose_target(optarg); break;
    case RANKS: set_ranks(optarg); break;
    case DUMP: options.dump = known_pass("dump", optarg); break;
    case FROM: options.from = known_pass("from", optarg); break;
    case TRACE: options.trace = true; break;
    case CHECK: options.check = true; break;
    case FINITE: options.check_finite = true; break;
    case EXPLAIN: options.explain = optarg; break;
    case EXPLAIN_COST: options.explain_cost = optarg; break;
    case MOVE: options.move = optarg; break;
    case PLANNER: set_planner(optarg); break;
    case LINK: add_link(optarg); break;
    case JSON: options.json = true; break;
    case EMIT: set_emit(optarg); break;
    case LIBRARY_NAME: options.library_name = optarg; break;
    case SCHEDULE: options.schedule = optarg; break;
    case RANKS_PP: options.ranks_pp = counted("ranks-pp", optarg); break;
    case STAGES: options.stages = counted("stages", optarg); break;
    case MICROBATCHES: options.microbatches = counted("microbatches", optarg); break;
    case LOWERED: options.lowered = true; break;
    case REFERENCE: set_reference(optarg); break;
    case CALIBRATE: options.calibrate = true; break;
    case SEARCH: options.search = true; break;
    case SEARCH_TIME: set_search_time(optarg); break;
    case CLUSTER: set_cluster_option(optarg); break;
    case REPORT: options.report = true; break;
    case METRICS: options.metrics = optarg; break;
    case COMPARE: options.compare = true; break;
    case HELP: options.help = true; break;
    case VERSION: puts("tpgen " TPGEN_VERSION); end_printing();
    case ':': usage_error(2, "%s: its value is missing; tpgen --help tells more", given);
    default: usage_error(2, "%s: no such option; tpgen --help lists them", given);
    }
  }
  if (options.help && optind == argc) {
    print_usage(stdout);
    end_printing();
  }
  if (options.help) check_one_plan(argc, argv);
  if (!options.help && !options.reference) check_options(argc, argv);
  options.plan = argv[optind];
}
/* clang-format on */

static struct buffer programs; /* the step of each rank */

/* The end of a finished program: of all ranks, or of those at one place of a pipeline. */
static void main_finish(void)
{
  prove();
  check_expectations();
  check_memory_limit();
  run_explain();
  emit_steps(&programs);
}

int main(int argc, char **argv)
{
  signal(SIGXFSZ, SIG_IGN); /* a file that grows too large is an error to report */
  on_failure(keep_output);
  read_options(argc, argv);
  graph_open();
  if (options.reference) {
    print_reference();
    end_printing();
  }
  help_with_plan();
  run_report_query();
  run_move_query();
  run_schedule_query();
  write_calibration();
  know_this_machine();
  search_settings(run_all);
  explain_cost();

  run_all(main_finish); /* the passes, in the order of ir/passes.h */
  emit_rest(&programs);
  if (found_plan()) {
    add_search_json(found_plan());
    add_chosen_plan(found_plan());
  }
  add_report_page();
  /* A plan that tpgen left in the folder stays there, and so does the table of its search. */
  note_file_read(options.plan);
  note_file_read(text("%.*ssearch.json", folder_length(options.plan), options.plan));
  write_files(plan_shown(), plan_options->hash);
  print_notes();
  return 0;
}
