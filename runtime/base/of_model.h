// SPDX-License-Identifier: MIT
#ifndef BASE_OF_MODEL_H
#define BASE_OF_MODEL_H

// State of the model that runs. A program has one model. In a library each thread has the state of
// the model whose function it is in; threads that OpenMP adds see none. TPGEN_ONE_MODEL: the
// process has one model of a library at a time.
#if defined TPGEN_LIBRARY && !defined TPGEN_ONE_MODEL
#define OF_MODEL __thread
#else
#define OF_MODEL
#endif

#endif
