// The command line of every generated program.
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

enum { MOST_DATA = 256 };

struct options {
  int steps, log_every;
  int save_every; // 0: only at the end
  int deadline;   // in seconds; 0: none
  const char *weights, *tokens, *metrics, *tensorboard, *load, *save, *export_to;
  const char *data[MOST_DATA + 1]; // each --data, then NULL
  const char *validate[MOST_DATA + 1];
  int validate_every, validate_steps; // 0: as the plan says
  bool keep_best;                     // by validation
  int keep;                           // so many of the last checkpoints; 0: the last alone
  int stop_after;                     // so many validations that are no better; 0: never
  const char *verify;                 // a checkpoint to look at, in the place of a run
  bool no_verify;                     // checksums of what is loaded do not count
  uint64_t shard_bytes;               // 0: never more than one file
  double peak_tflops;                 // 0: not told
  bool profile;                       // where a step's time goes on the GPU is to be told
  bool graph;                         // each step is to be one graph on the GPU
  bool dry_run;                       // what it takes is told, and nothing is trained
  bool help;
};

// Reads the command line. Where it is wrong, and `says` is true, it says so on standard error.
bool options_read(struct options *o, int argc, char **argv, bool says);

// Prints what the options mean.
void options_help(void);

#endif
