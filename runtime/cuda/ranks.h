// SPDX-License-Identifier: MIT
// The ranks of a model on the CUDA target: the functions of cuda.cu for cuda/job.cu and
// cuda/library.cu.
#ifndef CUDA_RANKS_H
#define CUDA_RANKS_H

#include "base/program.h"
#include "base/target.h"
#include "cuda/rendezvous.h"
#ifdef TPGEN_MPI
#include <mpi.h>
#endif

// Before there is NCCL the ranks meet through MPI, or over TCP.
#ifdef TPGEN_MPI
extern MPI_Comm over_mpi; // MPI_COMM_NULL: over TCP
#endif
enum { MEETING_SECONDS = 60 };
extern struct meeting meeting;
extern bool have_met; // over TCP: `meeting` changes no more

// Collective. The least number of all ranks.
int cuda_lowest(int value);

// Collective. Opens the device and NCCL; and releases all but memory.
void cuda_join();
void cuda_leave();

// Ends the communicators at once.
void cuda_abort();

#endif
