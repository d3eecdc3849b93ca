// SPDX-License-Identifier: MIT
// The rendezvous of a job's ranks over TCP. Every message has a fixed size; a text in it is
// zero-terminated.
#include "cuda/rendezvous.h"

#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "base/open_input.h"

enum { MESSAGE = 256, STRANGER_MS = 5000, RETRY_MS = 50 };
enum { HALF = 64, LISTENERS = 8, CALLERS = 64 };

static const char GREETING[] = "tpgen 2";
static const char WELCOME[] = "welcome";

struct place {
  const char *host;
  char port[8];
};

// A secret of the job's ranks: a rank sends the first half, and rank 0 answers with the second, so
// that an impostor in rank 0's place learns too little to answer. Each half is padded with zeros.
struct token {
  char first[HALF + 1], second[HALF + 1];
};

static long long now_ms(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

// ---- bytes -------------------------------------------------------------------------------------

// Waits until the socket can be read or written. If the deadline (of now_ms, or -1: none) passes,
// errno is ETIMEDOUT.
static bool ready(int fd, short events, long long deadline)
{
  for (;;) {
    long long left = deadline < 0 ? -1 : deadline - now_ms();
    struct pollfd p = {.fd = fd, .events = events};
    if (deadline >= 0 && left < 0) left = 0;
    int n = poll(&p, 1, (int)left);
    if (n > 0) return true;
    if (n == 0) errno = ETIMEDOUT;
    if (n == 0 || errno != EINTR) return false;
  }
}

static bool again(void)
{
  return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK;
}

static bool receive(int fd, void *to, size_t count, long long deadline)
{
  for (char *next = to; count > 0;) {
    if (!ready(fd, POLLIN, deadline)) return false;
    ssize_t n = recv(fd, next, count, MSG_DONTWAIT);
    if (n < 0 && again()) continue;
    if (n == 0) errno = ECONNRESET;
    if (n <= 0) return false;
    next += n;
    count -= (size_t)n;
  }
  return true;
}

static bool transmit(int fd, const void *from, size_t count, long long deadline)
{
  for (const char *next = from; count > 0;) {
    if (!ready(fd, POLLOUT, deadline)) return false;
    ssize_t n = send(fd, next, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && again()) continue;
    if (n <= 0) return false;
    next += n;
    count -= (size_t)n;
  }
  return true;
}

static void prepare_socket(int fd)
{
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

// ---- where -------------------------------------------------------------------------------------

static bool find_place(struct place *place, struct failure *why)
{
  const char *port = getenv("MASTER_PORT");
  char *end = NULL;
  long number = port && *port ? strtol(port, &end, 10) : 29500;
  place->host = getenv("MASTER_ADDR");
  if (!place->host || !*place->host)
    return failed(why, "MASTER_ADDR is not set: it should name the machine of rank 0, "
                       "where the other ranks find it");
  if ((end && *end) || number < 1 || number > 65534)
    return failed(why, "MASTER_PORT is \"%s\": it should be a number from 1 to 65534", port);
  snprintf(place->port, sizeof place->port, "%d", (int)number + 1);
  return true;
}

static struct addrinfo *look_up(const char *host, const char *port, struct failure *why)
{
  struct addrinfo *found = NULL;
  struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = host ? 0 : AI_PASSIVE};
  int error = getaddrinfo(host, port, &want, &found);
  if (error == 0) return found;
  failed(why, "cannot look up %s: %s", host ? host : "this machine's addresses",
         gai_strerror(error));
  return NULL;
}

// ---- who is of the job -------------------------------------------------------------------------

static void halve(const char *text, struct token *token)
{
  size_t length = strlen(text), first = (length + 1) / 2;
  *token = (struct token){{0}, {0}};
  memcpy(token->first, text, first);
  memcpy(token->second, text + first, length - first);
}

// TPGEN_TOKEN is a secret. Without it jobs are identified by their names in their launchers, which
// others may know.
static bool find_token(struct token *token, struct failure *why)
{
  const char *secret = getenv("TPGEN_TOKEN"), *run = getenv("TORCHELASTIC_RUN_ID");
  const char *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
  char text[2 * HALF + 1] = "";
  if (secret && *secret) {
    size_t length = strlen(secret);
    for (const char *c = secret; *c; c++)
      if (!isgraph((unsigned char)*c)) length = SIZE_MAX;
    if (length > 2 * HALF)
      return failed(why, "TPGEN_TOKEN should have at most %d letters and digits, and no space",
                    2 * HALF);
    memcpy(text, secret, length);
  } else if (run) {
    snprintf(text, sizeof text, "%s", run);
  } else if (job) {
    snprintf(text, sizeof text, "%s.%s", job, step ? step : "");
  }
  for (char *c = text; *c; c++)
    if (!isgraph((unsigned char)*c)) *c = '_';
  halve(text, token);
  return true;
}

// In constant time, wherever they differ.
static bool is_same_half(const char a[HALF + 1], const char b[HALF + 1])
{
  volatile unsigned char differ = 0;
  for (int i = 0; i <= HALF; i++) differ = (unsigned char)(differ | (a[i] ^ b[i]));
  return differ == 0;
}

// ---- rank 0 ------------------------------------------------------------------------------------

// A connection that has not yet sent all of its greeting.
struct caller {
  int fd;
  size_t got;
  long long until;
  char greeting[MESSAGE];
};

// Rank 0's side of the rendezvous.
struct door {
  struct meeting *meeting;
  const char *hash;
  struct token token;
  int listeners[LISTENERS];
  int nlisteners, missing;
  struct caller callers[CALLERS]; // in the order of arrival
  int ncallers;
  char refusal[MESSAGE]; // the last one
};

// The longest backlog that the system allows: a dropped connection is tried again after a second at
// the earliest, and strangers may fill a short list.
static int listen_at(const struct addrinfo *address)
{
  int on = 1, off = 0;
  int type = address->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK; // a caller may be gone again
  int fd = socket(address->ai_family, type, address->ai_protocol);
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}

static bool is_loopback(const struct addrinfo *a)
{
  const struct sockaddr_in *four = (const void *)a->ai_addr;
  const struct sockaddr_in6 *six = (const void *)a->ai_addr;
  if (a->ai_family == AF_INET) return ntohl(four->sin_addr.s_addr) >> 24 == 127;
  return a->ai_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

// A machine may resolve its own name to a loopback address, while the others resolve it to its real
// one.
static bool is_for_others(const struct place *place, const struct addrinfo *a)
{
  bool said = strcmp(place->host, "localhost") == 0 || strchr(place->host, ':') ||
              isdigit((unsigned char)*place->host);
  return said || !is_loopback(a);
}

// Listens at all addresses of this machine. IPv6 sockets accept both kinds of caller, so they come
// first.
static void listen_everywhere(struct door *door, const struct addrinfo *all)
{
  int fd = -1;
  for (const struct addrinfo *a = all; a && fd < 0; a = a->ai_next)
    if (a->ai_family == AF_INET6) fd = listen_at(a);
  for (const struct addrinfo *a = all; a && fd < 0 && errno != EADDRINUSE; a = a->ai_next)
    if (a->ai_family != AF_INET6) fd = listen_at(a);
  if (fd >= 0) door->listeners[door->nlisteners++] = fd;
}

// Listens at MASTER_ADDR only, if that is an address of this machine; an address behind NAT is not.
// `alone`: all ranks are on this machine.
static bool open_door(struct door *door, const struct place *place, bool alone, struct failure *why)
{
  struct addrinfo *all = look_up(place->host, place->port, why);
  if (!all) return false;
  errno = 0;
  for (struct addrinfo *a = all; a && door->nlisteners < LISTENERS && errno != EADDRINUSE;
       a = a->ai_next) {
    int fd = alone || is_for_others(place, a) ? listen_at(a) : -1;
    if (fd >= 0) door->listeners[door->nlisteners++] = fd;
  }
  bool taken = errno == EADDRINUSE;
  freeaddrinfo(all);
  if (!taken && door->nlisteners == 0 && (all = look_up(NULL, place->port, why))) {
    listen_everywhere(door, all);
    freeaddrinfo(all);
  }
  if (!taken && door->nlisteners > 0) return true;
  return failed(why, "rank 0 cannot listen on port %s: %s: set MASTER_PORT to another", place->port,
                strerror(taken ? EADDRINUSE : errno));
}

static void close_door(struct door *door)
{
  for (int i = 0; i < door->nlisteners; i++) close(door->listeners[i]);
  for (int i = 0; i < door->ncallers; i++) close(door->callers[i].fd);
}

// Checks a caller's greeting: its rank, or -1 and the text of the refusal if it is not of this job.
// A caller without the token learns nothing about the job.
static int judge(const struct door *door, char greeting[MESSAGE], char refusal[MESSAGE])
{
  const struct meeting *meeting = door->meeting;
  char word[16], number[16], their_hash[MESSAGE], half[HALF + 2] = "";
  int rank = -1, size = -1;
  greeting[MESSAGE - 1] = 0;
  int fields =
      sscanf(greeting, "%15s %15s %255s %d %d =%64s", word, number, their_hash, &rank, &size, half);
  if (fields < 5 || strncmp(greeting, GREETING, strlen(GREETING)) != 0) return -1;
  if (!is_same_half(half, door->token.first))
    snprintf(refusal, MESSAGE, "who says to be rank %d has not this job's token (TPGEN_TOKEN)",
             rank);
  else if (strcmp(their_hash, door->hash) != 0)
    snprintf(refusal, MESSAGE, "rank %d carries the program %.32s, but rank 0 carries %.32s", rank,
             their_hash, door->hash);
  else if (size != meeting->size || rank < 1 || rank >= size)
    snprintf(refusal, MESSAGE, "rank %d of %d is not of this job of %d", rank, size, meeting->size);
  else if (meeting->peers[rank] >= 0)
    snprintf(refusal, MESSAGE, "rank %d is here already: is another job on this port?", rank);
  else
    return rank;
  return -1;
}

static void drop_caller(struct door *door, int i)
{
  door->ncallers--;
  memmove(&door->callers[i], &door->callers[i + 1],
          (size_t)(door->ncallers - i) * sizeof *door->callers);
}

// Accepts a caller that has sent all of its greeting, or refuses it. An answer fits the send buffer
// of a new connection.
static void answer(struct door *door, struct caller *caller)
{
  char text[MESSAGE] = "";
  int rank = judge(door, caller->greeting, text);
  if (rank > 0)
    snprintf(text, sizeof text, "%s =%s", WELCOME, door->token.second);
  else if (*text)
    memcpy(door->refusal, text, MESSAGE);
  if (*text && transmit(caller->fd, text, MESSAGE, now_ms()) && rank > 0) {
    door->meeting->peers[rank] = caller->fd;
    door->missing--;
  } else {
    close(caller->fd);
  }
}

// Reads the bytes that a caller has sent so far. False at the end of its data.
static bool hear(struct door *door, struct caller *caller)
{
  ssize_t n = recv(caller->fd, caller->greeting + caller->got, MESSAGE - caller->got, MSG_DONTWAIT);
  if (n < 0 && again()) return true;
  if (n > 0) caller->got += (size_t)n;
  if (n > 0 && caller->got < MESSAGE) return true;
  if (n > 0)
    answer(door, caller);
  else
    close(caller->fd);
  return false;
}

// If there are too many callers, closes the one that was silent the longest.
static void let_in(struct door *door, int listener)
{
  for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
    if (door->ncallers == CALLERS) {
      close(door->callers[0].fd);
      drop_caller(door, 0);
    }
    prepare_socket(fd);
    door->callers[door->ncallers++] = (struct caller){.fd = fd, .until = now_ms() + STRANGER_MS};
  }
}

// The descriptors to poll: the listeners, the callers, and the connected ranks, which may leave
// again.
static int list_polls(const struct door *door, struct pollfd *polls)
{
  int n = 0;
  for (int i = 0; i < door->nlisteners; i++)
    polls[n++] = (struct pollfd){.fd = door->listeners[i], .events = POLLIN};
  for (int i = 0; i < door->ncallers; i++)
    polls[n++] = (struct pollfd){.fd = door->callers[i].fd, .events = POLLIN};
  for (int r = 1; r < door->meeting->size; r++)
    polls[n++] = (struct pollfd){.fd = door->meeting->peers[r], .events = POLLRDHUP};
  return n;
}

// Serves all ready descriptors once. False, and why, if a rank has left.
static bool serve(struct door *door, struct pollfd *polls, long long deadline, struct failure *why)
{
  long long until = deadline;
  for (int i = 0; i < door->ncallers; i++)
    if (door->callers[i].until < until) until = door->callers[i].until;
  int n = list_polls(door, polls), listeners = door->nlisteners, callers = door->ncallers;
  long long left = until - now_ms();
  if (poll(polls, (nfds_t)n, left > 0 ? (int)left : 0) < 0 && errno != EINTR)
    return failed(why, "cannot wait for the other ranks: %s", strerror(errno));
  const struct pollfd *peers = polls + listeners + callers;
  for (int r = 1; r < door->meeting->size; r++)
    if (door->meeting->peers[r] >= 0 && peers[r - 1].revents)
      return failed(why, "rank %d has gone away while others were awaited", r);
  for (int i = callers - 1; i >= 0; i--) {
    struct caller *caller = &door->callers[i];
    if (polls[listeners + i].revents) {
      if (!hear(door, caller)) drop_caller(door, i);
    } else if (caller->until <= now_ms()) {
      close(caller->fd);
      drop_caller(door, i);
    }
  }
  for (int i = 0; i < listeners; i++)
    if (polls[i].revents) let_in(door, door->listeners[i]);
  return true;
}

static bool someone_missing(const struct door *door, int seconds, struct failure *why)
{
  char ranks[200] = "";
  size_t used = 0;
  for (int r = 1; r < door->meeting->size && used < sizeof ranks - 16; r++)
    if (door->meeting->peers[r] < 0)
      used += (size_t)snprintf(ranks + used, sizeof ranks - used, "%s%d", used ? ", " : "", r);
  return failed(why, "after %d s these ranks have not come: %s%s%s", seconds, ranks,
                *door->refusal ? "; turned away: " : "", door->refusal);
}

static bool gather(struct door *door, int seconds, struct failure *why)
{
  size_t most = (size_t)(LISTENERS + CALLERS + door->meeting->size);
  struct pollfd *polls = malloc(most * sizeof *polls);
  if (!polls) return failed(why, "out of memory");
  long long deadline = now_ms() + seconds * 1000LL;
  bool ok = true;
  while (ok && door->missing > 0 && now_ms() < deadline) ok = serve(door, polls, deadline, why);
  free(polls);
  return ok && (door->missing == 0 || someone_missing(door, seconds, why));
}

static bool receive_all(struct meeting *meeting, const char *hash, const struct token *token,
                        const struct place *place, bool alone, int seconds, struct failure *why)
{
  struct door *door = calloc(1, sizeof *door);
  if (!door) return failed(why, "out of memory");
  door->meeting = meeting;
  door->hash = hash;
  door->token = *token;
  door->missing = meeting->size - 1;
  raise_file_limit((size_t)(meeting->size + CALLERS));
  bool ok = open_door(door, place, alone, why) && gather(door, seconds, why);
  close_door(door);
  free(door);
  return ok;
}

// ---- the others --------------------------------------------------------------------------------

static int try_address(const struct addrinfo *a, long long deadline)
{
  int error = 0;
  socklen_t length = sizeof error;
  int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
  if (fd < 0) return -1;
  if (connect(fd, a->ai_addr, a->ai_addrlen) != 0) error = errno;
  if (error == EINPROGRESS) {
    error = ready(fd, POLLOUT, deadline) ? 0 : errno;
    if (!error) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  }
  if (!error) return fd;
  close(fd);
  errno = error;
  return -1;
}

static int connect_to(const struct place *place, long long deadline, struct failure *why)
{
  for (;;) {
    int fd = -1;
    struct addrinfo *all = look_up(place->host, place->port, why);
    for (struct addrinfo *a = all; a && fd < 0; a = a->ai_next) {
      fd = try_address(a, deadline);
      if (fd < 0)
        failed(why, "cannot reach rank 0 at %s port %s: %s", place->host, place->port,
               strerror(errno));
    }
    if (all) freeaddrinfo(all);
    if (fd >= 0 || now_ms() + RETRY_MS > deadline) return fd;
    nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000L}, NULL);
  }
}

// Asks once to be accepted. *once_more: the peer has closed the connection without an answer.
static bool ask(struct meeting *meeting, const char *greeting, const struct token *token,
                const struct place *place, long long deadline, bool *once_more, struct failure *why)
{
  char text[MESSAGE], half[HALF + 2] = "";
  int fd = connect_to(place, deadline, why);
  *once_more = false;
  if (fd < 0) return false;
  meeting->peers[0] = fd;
  prepare_socket(fd);
  if (!transmit(fd, greeting, MESSAGE, deadline) || !receive(fd, text, MESSAGE, deadline)) {
    *once_more = errno != ETIMEDOUT;
    return failed(why, "whoever listens at %s port %s does not answer as rank 0 of this job",
                  place->host, place->port);
  }
  text[MESSAGE - 1] = 0;
  if (strncmp(text, WELCOME, strlen(WELCOME)) != 0)
    return failed(why, "rank 0 turned this rank away: %s", text);
  sscanf(text + strlen(WELCOME), " =%64s", half);
  if (is_same_half(half, token->second)) return true;
  return failed(why, "whoever listens at %s port %s has not this job's token (TPGEN_TOKEN)",
                place->host, place->port);
}

static bool greet(struct meeting *meeting, const char *hash, const struct token *token,
                  const struct place *place, int seconds, struct failure *why)
{
  char greeting[MESSAGE] = "";
  long long deadline = now_ms() + seconds * 1000LL;
  bool once_more = true;
  snprintf(greeting, sizeof greeting, "%s %s %d %d =%s", GREETING, hash, meeting->rank,
           meeting->size, token->first);
  while (once_more) {
    if (ask(meeting, greeting, token, place, deadline, &once_more, why)) return true;
    if (meeting->peers[0] >= 0) close(meeting->peers[0]);
    meeting->peers[0] = -1;
    once_more = once_more && now_ms() + RETRY_MS < deadline;
    if (once_more) nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000L}, NULL);
  }
  return false;
}

// ---- together ----------------------------------------------------------------------------------

bool meet_start(struct meeting *meeting, const struct identity *me, const char *hash, int seconds,
                struct failure *why)
{
  struct place place;
  struct token token;
  *meeting = (struct meeting){.size = me->size, .rank = me->rank, .timeout = seconds};
  if (me->size == 1) return true;
  if (!find_place(&place, why) || !find_token(&token, why)) return false;
  meeting->peers = malloc((size_t)me->size * sizeof *meeting->peers);
  if (!meeting->peers) return failed(why, "out of memory");
  memset(meeting->peers, -1, (size_t)me->size * sizeof *meeting->peers); // not connected
  bool alone = me->local_size == me->size;
  bool ok = me->rank == 0 ? receive_all(meeting, hash, &token, &place, alone, seconds, why)
                          : greet(meeting, hash, &token, &place, seconds, why);
  if (!ok) meet_stop(meeting);
  return ok;
}

static long long wait_until(const struct meeting *meeting)
{
  return meeting->timeout > 0 ? now_ms() + meeting->timeout * 1000LL : -1;
}

static bool lost(const struct meeting *meeting, int rank, struct failure *why)
{
  if (errno == ETIMEDOUT)
    return failed(why, "rank %d has not answered for %d s", rank, meeting->timeout);
  return failed(why, "rank %d has gone away", rank);
}

static bool take(const struct meeting *meeting, int rank, void *to, size_t count,
                 struct failure *why)
{
  return receive(meeting->peers[rank], to, count, wait_until(meeting)) || lost(meeting, rank, why);
}

static bool give(const struct meeting *meeting, int rank, const void *from, size_t count,
                 struct failure *why)
{
  return transmit(meeting->peers[rank], from, count, wait_until(meeting)) ||
         lost(meeting, rank, why);
}

bool meet_share(const struct meeting *meeting, void *bytes, size_t count, struct failure *why)
{
  if (meeting->rank != 0) return take(meeting, 0, bytes, count, why);
  for (int r = 1; r < meeting->size; r++)
    if (!give(meeting, r, bytes, count, why)) return false;
  return true;
}

bool meet_lowest(const struct meeting *meeting, int value, int *lowest, struct failure *why)
{
  *lowest = value;
  if (meeting->rank != 0 && !give(meeting, 0, &value, sizeof value, why)) return false;
  for (int r = 1; meeting->rank == 0 && r < meeting->size; r++) {
    if (!take(meeting, r, &value, sizeof value, why)) return false;
    if (value < *lowest) *lowest = value;
  }
  return meet_share(meeting, lowest, sizeof *lowest, why);
}

bool meet_gather(const struct meeting *meeting, const void *given, size_t count, void *all,
                 struct failure *why)
{
  memcpy(all, given, count);
  if (meeting->rank != 0 && !give(meeting, 0, given, count, why)) return false;
  for (int r = 1; meeting->rank == 0 && r < meeting->size; r++)
    if (!take(meeting, r, (char *)all + (size_t)r * count, count, why)) return false;
  return meet_share(meeting, all, (size_t)meeting->size * count, why);
}

int meet_lost(const struct meeting *meeting)
{
  for (int r = 0; r < meeting->size && meeting->peers; r++) {
    struct pollfd p = {.fd = meeting->peers[r], .events = POLLRDHUP};
    if (p.fd >= 0 && poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR)) return r;
  }
  return -1;
}

void meet_stop(struct meeting *meeting)
{
  int sockets = meeting->peers ? meeting->size : 0;
  for (int r = 0; r < sockets; r++)
    if (meeting->peers[r] >= 0) close(meeting->peers[r]);
  free(meeting->peers);
  meeting->peers = NULL;
}
