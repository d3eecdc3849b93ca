// What a job's validations have told so far: a checkpoint has it.
#ifndef VALIDATIONS_H
#define VALIDATIONS_H

struct validations {
  int step; // of the last one; 0: there was none
  double loss;
  int best_step; // of the one with the least loss
  double best;
  int without; // so many behind it were no better
};
extern struct validations validations;

// Notes one.
void validations_note(int step, double loss);

#endif
