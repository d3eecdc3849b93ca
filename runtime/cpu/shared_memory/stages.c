// SPDX-License-Identifier: MIT
// Sends and receives between stages of a pipeline, through shared memory: a sender writes into its
// box where the value is, and goes on; the receiver takes it from there.
#include "cpu/shared_memory/names.h"
#include "cpu/shared_memory/shared.h"
#include "cpu/stages.h"

#include <stdlib.h>

static struct mailbox *own_box(void)
{
  return shared_box(shared_machine, shared_place_in(shared_machine));
}

// The letter of that number, or NULL: it has been taken, or there was none.
static struct letter *open_letter(struct mailbox *box, uint32_t number)
{
  struct letter *l = &box->letter[number % LETTERS];
  const uint32_t has = atomic_load_explicit(&l->number, memory_order_acquire);
  return has != 0 && has == number ? l : NULL;
}

// ---- sending ------------------------------------------------------------------------------------

// The actions that have sent what is in the own box: a rank that waits for one says so.
static struct {
  const struct place *at;
  int microbatch;
} sent_by[LETTERS];

static void await_taken(struct mailbox *box, uint32_t number)
{
  const struct place *own = pending;
  const int of = pending_microbatch;
  if (!open_letter(box, number)) return;
  begin_action_of(sent_by[number % LETTERS].at, sent_by[number % LETTERS].microbatch);
  for (;;) {
    const uint32_t taken = atomic_load(&box->taken);
    if (!open_letter(box, number)) break;
    shared_wait_for(&box->taken, &box->senders, taken + 1);
  }
  begin_action_of(own, of);
}

// Those of values that begin within these bytes; of any value if there is no place.
static void await_those_within(location begin, size_t bytes)
{
  static uint32_t taken; // this letter, and all before it
  struct mailbox *box = own_box();
  const uint32_t sent = atomic_load(&box->sent);
  while (taken != sent && !open_letter(box, taken + 1)) taken++;
  for (uint32_t n = taken; n != sent;) {
    const struct letter *l = open_letter(box, ++n);
    if (l && (!begin || (l->value >= begin && l->value < begin + bytes))) await_taken(box, n);
  }
}

int await_sent(const void *value)
{
  await_those_within(shared_place(value, 1, NULL), 1);
  return MPI_SUCCESS;
}

int await_sent_within(const void *begin, long bytes)
{
  await_those_within(shared_place(begin, 1, NULL), (size_t)bytes);
  return MPI_SUCCESS;
}

int await_all_sent(void)
{
  await_those_within(0, 0);
  return MPI_SUCCESS;
}

int send_to(const void *value, int n, MPI_Datatype type, int to, int tag, MPI_Comm group)
{
  struct mailbox *box = own_box();
  const uint32_t number = atomic_load(&box->sent) + 1;
  const size_t bytes = (size_t)n * shared_size(shared_type_of(type));
  struct letter *l = &box->letter[number % LETTERS];
  await_taken(box, number - LETTERS);
  sent_by[number % LETTERS].at = pending;
  sent_by[number % LETTERS].microbatch = pending_microbatch;
  l->value = shared_place(value, bytes, NULL);
  l->bytes = bytes;
  l->to = shared_number_of(group, to);
  l->tag = tag;
  atomic_store_explicit(&l->number, number, memory_order_relaxed);
  shared_add(&box->sent, &box->receivers);
  return MPI_SUCCESS;
}

// ---- receiving ----------------------------------------------------------------------------------

// The oldest letter to this rank with the tag, or NULL; *sent: the number of letters so far.
static struct letter *find_letter(struct mailbox *box, int from, int tag, uint32_t *sent)
{
  static uint32_t passed[SHARED_RANKS]; // none up to this one is for this rank any more
  const int me = shared_place_in(shared_machine);
  *sent = atomic_load_explicit(&box->sent, memory_order_acquire);
  for (uint32_t n = passed[from]; n != *sent;) {
    struct letter *l = open_letter(box, ++n);
    const bool is_mine = l && l->to == me;
    if (is_mine && l->tag == tag) return l;
    if (!is_mine && n == passed[from] + 1) passed[from] = n;
  }
  return NULL;
}

// Receives that are posted: the letters that this rank is to take.
static struct receiving {
  void *value;
  MPI_Datatype type;
  MPI_Comm group;
  int n, from, tag;
} * receiving;
static int nreceiving, receiving_room;

int post_receive(void *value, int n, MPI_Datatype type, int from, int tag, MPI_Comm group)
{
  if (nreceiving == receiving_room) {
    receiving_room = receiving_room ? 2 * receiving_room : 8;
    struct receiving *more = realloc(receiving, (size_t)receiving_room * sizeof *more);
    if (!more) fail_call(__FILE__, __LINE__, "realloc", "no memory");
    receiving = more;
  }
  receiving[nreceiving++] = (struct receiving){value, type, group, n, from, tag};
  return MPI_SUCCESS;
}

int await_received(const void *value)
{
  int i = 0;
  while (i < nreceiving && receiving[i].value != value) i++;
  if (i == nreceiving) fail_call(__FILE__, __LINE__, "await_received", "no receive was posted");
  const struct receiving p = receiving[i];
  receiving[i] = receiving[--nreceiving];
  return receive_from(p.value, p.n, p.type, p.from, p.tag, p.group);
}

int receive_from(void *value, int n, MPI_Datatype type, int from, int tag, MPI_Comm group)
{
  const int sender = shared_number_of(group, from);
  const size_t bytes = (size_t)n * shared_size(shared_type_of(type));
  struct mailbox *box = shared_box(shared_machine, sender);
  struct letter *l;
  for (uint32_t sent; !(l = find_letter(box, sender, tag, &sent));)
    shared_wait_for(&box->sent, &box->receivers, sent + 1);
  if (l->bytes != bytes)
    return shared_tell(group,
                       shared_error("rank %d sends %llu bytes, and this one takes %llu",
                                    shared_rank_of(group, from), (unsigned long long)l->bytes,
                                    (unsigned long long)bytes));
  shared_copy(value, shared_at(group, from, l->value), bytes, false);
  atomic_store_explicit(&l->number, 0, memory_order_release);
  shared_add(&box->taken, &box->senders);
  return MPI_SUCCESS;
}
