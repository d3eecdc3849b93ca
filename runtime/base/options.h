// SPDX-License-Identifier: MIT
// The command line of every generated program.
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

enum { MOST_DATA = 256, MOST_STOPS = 16, MOST_PATTERNS = 16 };

enum on_nan { NAN_GOES_ON, NAN_STOP, NAN_ROLLBACK, NAN_SKIP, NAN_UNKNOWN };

struct options {
  int steps, log_every;
  bool sets_steps; // --steps was given
  int epochs;      // instead of steps; 0: not given
  int save_every;  // 0: only at the end
  int deadline;    // in seconds; 0: none
  const char *weights, *tokens, *metrics, *tensorboard, *load, *save, *export_to;
  const char *logs;   // a folder for a log of each rank
  bool stragglers;    // reports how long ranks work
  const char *resume; // loads this checkpoint if it exists, and saves there
  bool overwrite;     // replaces a checkpoint of a later step
  bool save_at_once;  // stops the steps while it saves
  enum on_nan on_nan; // after a step whose loss is not finite
  double max_time;    // in seconds; 0: none
  const char *more_weights[MOST_PATTERNS + 1]; // each --weights behind the first, then NULL
  const char *ignore[MOST_PATTERNS + 1], *allow_missing[MOST_PATTERNS + 1]; // patterns of names
  const char *adapter, *export_adapter;
  const char *data[MOST_DATA + 1]; // each --data, then NULL
  const char *validate[MOST_DATA + 1];
  int validate_every, validate_steps; // 0: from the plan
  bool evaluate;                      // only validates
  const char *best;                   // "max:METRIC" or "min:METRIC" of validations; NULL: the loss
  bool keep_best;                     // by validation
  int keep;                           // keeps so many of the last checkpoints; 0: only the last
  bool ema;                           // validates and exports the moving average of the weights
  int stop_after;                     // after so many validations without improvement; 0: never
  const char *verify;                 // a checkpoint to verify, instead of a run
  bool no_verify;                     // does not verify checksums of loaded files
  uint64_t shard_bytes;               // 0: always one file
  double peak_tflops;                 // 0: not given
  bool profile;                       // reports the GPU time of the parts of a step
  bool graph;                         // runs each step as one graph on the GPU
  bool dry_run;                       // reports the job's memory and time, and does not train
  bool help;
  // Options of a program that generates.
  const char *prompt, *prompts, *output, *encode, *tokenizer;
  const char *score, *check_causal;                     // files of texts
  int make;                                             // tokens for each prompt; 0: as many as fit
  double temperature, top_p, min_p, repetition_penalty; // negative: not given
  int top_k, top; // -1: not given; so many best candidates are written
  uint64_t draw_seed;
  bool chat;          // talks on the terminal
  const char *system; // what a chat begins with
  bool raw;           // a chat without a template
  int serve;          // the port of a server; 0: none
  int queue;          // requests that wait for a slot there; negative: not given
  const char *host, *token_file;
  const char *stop[MOST_STOPS + 1]; // texts that end an answer, then NULL
  bool sets_generation;             // one of these options was given
};

// Reads the command line. If it is wrong and `says` is true, reports it on standard error.
bool options_read(struct options *o, int argc, char **argv, bool says);

// Prints the help text.
void options_help(void);

#endif
