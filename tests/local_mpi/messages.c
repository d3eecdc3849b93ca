#include "messages.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rings.h"

/* A PART is followed by its bytes. A message is OFFERed; the receiver WANTs it when its receive is
   posted; then its BYTES follow. */
enum kind { PART, OFFER, WANT, BYTES };

struct head {
  enum kind kind;
  int context, tag;
  char call[16];
  size_t bytes;
  struct message *sent, *received; /* in the memory of the one rank and of the other */
};

/* What is to be written to a peer. */
struct frame {
  struct frame *next;
  struct head head;
  const char *from;
  size_t done;          /* of its head and its bytes */
  struct message *ends; /* is over when it is written */
};

struct list {
  struct message *first;
};

static struct peer {
  struct frame *queue;
  struct {
    struct head head;
    struct message *message; /* NULL: its head is not all there */
    size_t done;             /* of its head and its bytes */
  } coming;
  struct list posted, early; /* receives that wait; parts and offers that none has asked for */
  struct list sends;         /* messages not over */
} peers[MOST_RANKS];

static void *room_for(size_t bytes)
{
  void *room = calloc(1, bytes);
  if (!room) ranks_misuse("a message", "no memory", (long)bytes, 0);
  return room;
}

static void append(struct list *list, struct message *m)
{
  struct message **at = &list->first;
  while (*at) at = &(*at)->next;
  m->next = NULL;
  *at = m;
}

static void take_out(struct list *list, const struct message *m)
{
  struct message **at = &list->first;
  while (*at && *at != m) at = &(*at)->next;
  if (*at) *at = m->next;
}

/* The first one that the other end of `m` may be, or NULL. */
static struct message *other_end(const struct list *list, const struct message *m)
{
  struct message *o = list->first;
  while (o && !(o->is_part == m->is_part && o->context == m->context &&
                (o->is_part || o->tag == m->tag)))
    o = o->next;
  return o;
}

static void compare(const struct message *mine, const struct message *theirs)
{
  if (strncmp(mine->call, theirs->call, sizeof mine->call) == 0 && mine->bytes == theirs->bytes)
    return;
  fprintf(
      stderr,
      "local MPI: rank %d: MPI_%s on group %d has %zu bytes from rank %d, which calls MPI_%s on "
      "group %d with %zu bytes\n",
      ranks_me, mine->call, mine->context, mine->bytes, mine->peer, theirs->call, theirs->context,
      theirs->bytes);
  _exit(EXIT_FAILURE);
}

/* ---- what is sent ---------------------------------------------------------------------------- */

static void enqueue(int peer, struct head head, const char *from, struct message *ends)
{
  struct frame **at = &peers[peer].queue, *f = room_for(sizeof *f);
  while (*at) at = &(*at)->next;
  *f = (struct frame){.head = head, .from = from, .ends = ends};
  *at = f;
}

/* Bytes that follow a head. */
static size_t bytes_behind(const struct head *head)
{
  return head->kind == PART || head->kind == BYTES ? head->bytes : 0;
}

/* Whether it has written something. */
static bool push(int to)
{
  struct frame *f = peers[to].queue;
  if (!f) return false;
  const size_t before = f->done, all = sizeof f->head + bytes_behind(&f->head);
  if (f->done < sizeof f->head)
    f->done += ranks_write(to, (const char *)&f->head + f->done, sizeof f->head - f->done);
  if (f->done >= sizeof f->head && f->done < all)
    f->done += ranks_write(to, f->from + (f->done - sizeof f->head), all - f->done);
  if (f->done < all) return f->done > before;
  if (f->ends) {
    f->ends->over = true;
    take_out(&peers[to].sends, f->ends);
  }
  peers[to].queue = f->next;
  free(f);
  return true;
}

/* ---- what comes ------------------------------------------------------------------------------ */

static struct message message_of(const struct head *head, int from)
{
  struct message m = {.is_part = head->kind == PART,
                      .peer = from,
                      .context = head->context,
                      .tag = head->tag,
                      .bytes = head->bytes};
  memcpy(m.call, head->call, sizeof m.call);
  return m;
}

/* One that nobody has asked for: of a part the bytes are kept, of an offer who has sent it. */
static struct message *keep(const struct head *head, int from)
{
  struct message *m = room_for(sizeof *m);
  *m = message_of(head, from);
  m->to = m->is_part ? room_for(head->bytes + 1) : (char *)head->sent;
  append(&peers[from].early, m);
  return m;
}

static void want(struct message *receive, struct message *sent)
{
  const struct head head = {.kind = WANT, .sent = sent, .received = receive};
  take_out(&peers[receive->peer].posted, receive);
  enqueue(receive->peer, head, NULL, NULL);
}

/* The message that the bytes behind this head are for, or any. */
static struct message *arrive(const struct head *head, int from)
{
  static struct message none;
  const struct message theirs = message_of(head, from);
  struct message *m = other_end(&peers[from].posted, &theirs);
  switch (head->kind) {
  case WANT:
    enqueue(from,
            (struct head){.kind = BYTES, .bytes = head->sent->bytes, .received = head->received},
            head->sent->from, head->sent);
    return &none;
  case BYTES:
    return head->received;
  default:
    if (!m) return keep(head, from);
    compare(m, &theirs);
    if (head->kind == OFFER) want(m, head->sent);
    return m;
  }
}

/* Gives a receive what has come before it was posted, if that is all there. */
static void match(struct message *receive)
{
  struct peer *p = &peers[receive->peer];
  struct message *e = other_end(&p->early, receive);
  if (!e || (e->is_part && !e->over)) return;
  compare(receive, e);
  take_out(&p->early, e);
  if (e->is_part) {
    memcpy(receive->to, e->to, e->bytes);
    take_out(&p->posted, receive);
    receive->over = true;
    free(e->to);
  } else {
    want(receive, (struct message *)(void *)e->to);
  }
  free(e);
}

static void end_coming(int from)
{
  struct peer *p = &peers[from];
  struct message *m = p->coming.message, *receive;
  const bool has_bytes = p->coming.head.kind == PART || p->coming.head.kind == BYTES;
  memset(&p->coming, 0, sizeof p->coming);
  if (!has_bytes) return;
  m->over = true;
  take_out(&p->posted, m);
  if (m->is_part && (receive = other_end(&p->posted, m))) match(receive);
}

/* Whether it has read something. */
static bool pull(int from)
{
  struct head *head = &peers[from].coming.head;
  struct message **m = &peers[from].coming.message;
  size_t *done = &peers[from].coming.done;
  const size_t before = *done;
  if (*done < sizeof *head) *done += ranks_read(from, (char *)head + *done, sizeof *head - *done);
  if (*done < sizeof *head) return *done > before;
  if (!*m) *m = arrive(head, from);
  const size_t all = sizeof *head + bytes_behind(head);
  if (*done < all) *done += ranks_read(from, (*m)->to + (*done - sizeof *head), all - *done);
  if (*done < all) return *done > before;
  end_coming(from);
  return true;
}

/* ---- for the calls --------------------------------------------------------------------------- */

void ranks_begin_message(struct message *m)
{
  struct head head = {.kind = m->is_part ? PART : OFFER,
                      .context = m->context,
                      .tag = m->tag,
                      .bytes = m->bytes,
                      .sent = m};
  memcpy(head.call, m->call, sizeof head.call);
  if (m->sends) {
    append(&peers[m->peer].sends, m);
    enqueue(m->peer, head, m->from, m->is_part ? m : NULL);
  } else {
    append(&peers[m->peer].posted, m);
    match(m);
  }
}

static bool move_some(void)
{
  bool moved = false;
  for (int i = 0; i < ranks_in_all; i++) {
    while (push(i)) moved = true;
    while (pull(i)) moved = true;
  }
  return moved;
}

bool ranks_progress(void)
{
  const bool moved = move_some();
  while (moved && move_some()) continue;
  return moved;
}

static void tell(FILE *to, const char *what, const struct message *m)
{
  if (m->is_part)
    fprintf(to, "; it %s MPI_%s of rank %d on group %d", what, m->call, m->peer, m->context);
  else
    fprintf(to, "; it %s a message, tag %d, %zu bytes, %s rank %d on group %d", what, m->tag,
            m->bytes, m->sends ? "to" : "from", m->peer, m->context);
}

static void tell_all(FILE *to, const char *what, const struct list *list)
{
  for (const struct message *m = list->first; m; m = m->next) tell(to, what, m);
}

/* Ends the rank with all that it sends and receives: one write, so that the lines of several ranks
   do not mix. */
static _Noreturn void end_with_messages(const char *call, const char *why)
{
  char *text = NULL;
  size_t size = 0;
  FILE *to = open_memstream(&text, &size);
  if (!to) _exit(EXIT_FAILURE);
  fprintf(to, "local MPI: rank %d: %s: %s", ranks_me, call, why);
  for (int i = 0; i < ranks_in_all; i++) {
    tell_all(to, "waits for", &peers[i].posted);
    tell_all(to, "sends", &peers[i].sends);
    tell_all(to, "has not asked for", &peers[i].early);
  }
  fputc('\n', to);
  if (fclose(to) == 0) (void)!write(STDERR_FILENO, text, size);
  _exit(EXIT_FAILURE);
}

void ranks_expect(const char *call, const struct message *m, bool peer_had_ended)
{
  char why[64];
  if (m->over || !peer_had_ended) return;
  snprintf(why, sizeof why, "rank %d has ended", m->peer);
  end_with_messages(call, why);
}

void ranks_wait_for_news(const char *call, uint32_t heard)
{
  if (ranks_sleep(heard)) end_with_messages(call, "all ranks wait");
}

void ranks_expect_no_messages(const char *call)
{
  for (int i = 0; i < ranks_in_all; i++)
    if (peers[i].posted.first || peers[i].sends.first || peers[i].early.first)
      end_with_messages(call, "messages are not over");
}
