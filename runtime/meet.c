// How the ranks of a job meet over TCP. Every message has a fixed size; a text in it ends with 0.
#include "meet.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE = 256, STRANGER_MS = 2000, RETRY_MS = 50 };

static const char GREETING[] = "tpgen 1";
static const char WELCOME[] = "welcome";

struct place {
  const char *host;
  char port[8];
};

static long long now_ms(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

// ---- bytes -------------------------------------------------------------------------------------

// Waits until the socket can be read or written, or the deadline (of now_ms, or -1: none) is past.
static bool ready(int fd, short events, long long deadline)
{
  for (;;) {
    long long left = deadline < 0 ? -1 : deadline - now_ms();
    if (deadline >= 0 && left <= 0) return false;
    struct pollfd p = {.fd = fd, .events = events};
    int n = poll(&p, 1, (int)left);
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
  }
}

static bool receive(int fd, void *to, size_t count, long long deadline)
{
  for (char *next = to; count > 0;) {
    if (!ready(fd, POLLIN, deadline)) return false;
    ssize_t n = recv(fd, next, count, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    next += n;
    count -= (size_t)n;
  }
  return true;
}

static bool transmit(int fd, const void *from, size_t count)
{
  for (const char *next = from; count > 0;) {
    ssize_t n = send(fd, next, count, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
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

// ---- rank 0 ------------------------------------------------------------------------------------

static int listen_at(const struct addrinfo *address, int backlog)
{
  int on = 1, off = 0;
  int type = address->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK; // a caller may be gone again
  int fd = socket(address->ai_family, type, address->ai_protocol);
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, backlog) == 0) return fd;
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}

// An address of IPv6 takes both kinds of caller, so it comes first.
static int listen_on(const char *port, int backlog, struct failure *why)
{
  struct addrinfo *all = look_up(NULL, port, why);
  if (!all) return -1;
  int fd = -1;
  for (struct addrinfo *a = all; a && fd < 0; a = a->ai_next)
    if (a->ai_family == AF_INET6) fd = listen_at(a, backlog);
  for (struct addrinfo *a = all; a && fd < 0 && errno != EADDRINUSE; a = a->ai_next)
    if (a->ai_family != AF_INET6) fd = listen_at(a, backlog);
  if (fd < 0)
    failed(why, "rank 0 cannot listen on port %s: %s: set MASTER_PORT to another", port,
           strerror(errno));
  freeaddrinfo(all);
  return fd;
}

// Reads a caller's greeting: its rank, or -1 and the refusal's text where it is not of this job.
static int judge(const struct meeting *meeting, const char *hash, char greeting[MESSAGE],
                 char refusal[MESSAGE])
{
  char word[16], number[16], their_hash[MESSAGE];
  int rank = -1, size = -1;
  greeting[MESSAGE - 1] = 0;
  int fields = sscanf(greeting, "%15s %15s %255s %d %d", word, number, their_hash, &rank, &size);
  if (fields != 5 || strncmp(greeting, GREETING, strlen(GREETING)) != 0) return -1;
  if (strcmp(their_hash, hash) != 0)
    snprintf(refusal, MESSAGE, "rank %d carries the program %.32s, but rank 0 carries %.32s", rank,
             their_hash, hash);
  else if (size != meeting->size || rank < 1 || rank >= size)
    snprintf(refusal, MESSAGE, "rank %d of %d is not of this job of %d", rank, size, meeting->size);
  else if (meeting->peers[rank] >= 0)
    snprintf(refusal, MESSAGE, "rank %d is here already: is another job on this port?", rank);
  else
    return rank;
  return -1;
}

// Lets one caller in, or turns it away. True where it is of this job.
static bool admit(struct meeting *meeting, const char *hash, int fd, char refusal[MESSAGE])
{
  char greeting[MESSAGE], answer[MESSAGE] = "";
  prepare_socket(fd);
  int rank = -1;
  if (receive(fd, greeting, MESSAGE, now_ms() + STRANGER_MS))
    rank = judge(meeting, hash, greeting, answer);
  if (rank > 0) snprintf(answer, sizeof answer, "%s", WELCOME);
  if (rank < 0 && *answer) memcpy(refusal, answer, MESSAGE);
  if (*answer && transmit(fd, answer, MESSAGE) && rank > 0) {
    meeting->peers[rank] = fd;
    return true;
  }
  close(fd);
  return false;
}

static bool someone_missing(const struct meeting *meeting, int seconds, const char *refusal,
                            struct failure *why)
{
  char ranks[200] = "";
  size_t used = 0;
  for (int r = 1; r < meeting->size && used < sizeof ranks - 16; r++)
    if (meeting->peers[r] < 0)
      used += (size_t)snprintf(ranks + used, sizeof ranks - used, "%s%d", used ? ", " : "", r);
  return failed(why, "after %d s these ranks have not come: %s%s%s", seconds, ranks,
                *refusal ? "; turned away: " : "", refusal);
}

static bool gather(struct meeting *meeting, const char *hash, const char *port, int seconds,
                   struct failure *why)
{
  char refusal[MESSAGE] = "";
  long long deadline = now_ms() + seconds * 1000LL;
  int listener = listen_on(port, meeting->size, why);
  if (listener < 0) return false;
  int missing = meeting->size - 1;
  while (missing > 0 && ready(listener, POLLIN, deadline)) {
    int fd = accept(listener, NULL, NULL);
    if (fd >= 0 && admit(meeting, hash, fd, refusal)) missing--;
  }
  close(listener);
  return missing == 0 || someone_missing(meeting, seconds, refusal, why);
}

// ---- the others --------------------------------------------------------------------------------

// The timeout holds for connecting, too; afterwards there is none.
static void limit_sending(int fd, long long ms)
{
  struct timeval limit = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

static int try_address(const struct addrinfo *a, long long deadline)
{
  long long left = deadline - now_ms();
  int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
  if (fd < 0) return -1;
  limit_sending(fd, left > 0 ? left : 1);
  if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) {
    limit_sending(fd, 0);
    return fd;
  }
  int error = errno;
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

static bool greet(struct meeting *meeting, const char *hash, const struct place *place, int seconds,
                  struct failure *why)
{
  char greeting[MESSAGE] = "", answer[MESSAGE];
  long long deadline = now_ms() + seconds * 1000LL;
  int fd = connect_to(place, deadline, why);
  if (fd < 0) return false;
  meeting->peers[0] = fd;
  prepare_socket(fd);
  snprintf(greeting, sizeof greeting, "%s %s %d %d", GREETING, hash, meeting->rank, meeting->size);
  if (!transmit(fd, greeting, MESSAGE) || !receive(fd, answer, MESSAGE, deadline))
    return failed(why, "whoever listens at %s port %s does not answer as rank 0 of this job",
                  place->host, place->port);
  answer[MESSAGE - 1] = 0;
  if (strcmp(answer, WELCOME) == 0) return true;
  return failed(why, "rank 0 turned this rank away: %s", answer);
}

// ---- together ----------------------------------------------------------------------------------

bool meet_start(struct meeting *meeting, const struct identity *me, const char *hash, int seconds,
                struct failure *why)
{
  struct place place;
  *meeting = (struct meeting){.size = me->size, .rank = me->rank};
  if (me->size == 1) return true;
  if (!find_place(&place, why)) return false;
  meeting->peers = malloc((size_t)me->size * sizeof *meeting->peers);
  if (!meeting->peers) return failed(why, "out of memory");
  memset(meeting->peers, -1, (size_t)me->size * sizeof *meeting->peers); // nobody yet
  bool ok = me->rank == 0 ? gather(meeting, hash, place.port, seconds, why)
                          : greet(meeting, hash, &place, seconds, why);
  if (!ok) meet_stop(meeting);
  return ok;
}

static bool gone(int rank, struct failure *why)
{
  return failed(why, "rank %d has gone away", rank);
}

bool meet_share(const struct meeting *meeting, void *bytes, size_t count, struct failure *why)
{
  if (meeting->rank != 0) return receive(meeting->peers[0], bytes, count, -1) || gone(0, why);
  for (int r = 1; r < meeting->size; r++)
    if (!transmit(meeting->peers[r], bytes, count)) return gone(r, why);
  return true;
}

bool meet_lowest(const struct meeting *meeting, int value, int *lowest, struct failure *why)
{
  *lowest = value;
  if (meeting->rank != 0 && !transmit(meeting->peers[0], &value, sizeof value)) return gone(0, why);
  for (int r = 1; meeting->rank == 0 && r < meeting->size; r++) {
    if (!receive(meeting->peers[r], &value, sizeof value, -1)) return gone(r, why);
    if (value < *lowest) *lowest = value;
  }
  return meet_share(meeting, lowest, sizeof *lowest, why);
}

bool meet_gather(const struct meeting *meeting, const void *given, size_t count, void *all,
                 struct failure *why)
{
  memcpy(all, given, count);
  if (meeting->rank != 0 && !transmit(meeting->peers[0], given, count)) return gone(0, why);
  for (int r = 1; meeting->rank == 0 && r < meeting->size; r++)
    if (!receive(meeting->peers[r], (char *)all + (size_t)r * count, count, -1))
      return gone(r, why);
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
