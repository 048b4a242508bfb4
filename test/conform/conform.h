/* SPDX-License-Identifier: MIT */
/*
 * The conformance suite: what every store must do, through the public API alone.
 *
 *     conform URL [--list | TEXT | =NAME]
 *
 * A case makes its own lock names, so that any number of runs may share a store. It
 * judges by what the store declares of itself (picket_guarantees): what is declared is
 * wanted, what is not is left out there, and refused.c wants it refused. Nothing is
 * timed: a case waits for what must come, or compares clocks that the API shows.
 *
 * Worker processes are told things and report, one byte each. They never return into the
 * harness and never CHECK: they MUST, and leave by _exit.
 */
#ifndef PICKET_CONFORM_H
#define PICKET_CONFORM_H

#include <picket.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "tap.h"

enum {
    /* Longer than anything takes on a busy machine. */
    PATIENCE_MS = 120000,
    /* A TTL whose renewals, and whatever hangs on them, come after all patience. */
    LONG_TTL_MS = 600000,
    /* A TTL that is worth waiting for. */
    SHORT_TTL_MS = 2000,
    WORKERS_MAX = 16,
};

/* Begins a case: a new set of names, and no workers. */
void begin(void);
/* A name of this case alone, good to its end. */
const char *name_of(const char *what);

const struct picket_guarantees *guarantees(void);
bool fair(void); /* waiters stand in a queue, which can be looked at */
/* Leaves the case, unless the store declares that. */
void needs(int flag, const char *what);
/* As CHECK, and tells what was answered instead. */
#define CHECK_IS(call, status) check_status((call), (status), __FILE__, __LINE__, #call)
#define CHECK_OK(call) CHECK_IS(call, PICKET_OK)
void check_status(enum picket_status s, enum picket_status wanted, const char *file,
                  int line, const char *what);
/* The call was refused because the store can't do that, in a sentence which says so. */
#define CHECK_REFUSED(call) check_refused((call), __FILE__, __LINE__, #call)
void check_refused(enum picket_status s, const char *file, int line, const char *what);
/* `later` was granted after `earlier`, of the same lock: so its token is greater, or both
 * are 0 where there are none (P2). */
#define CHECK_LATER(later, earlier)                                                      \
    tap_check(guarantees()->tokens != 0 ? (later) > (earlier)                            \
                                        : (later) == 0 && (earlier) == 0,                \
              __FILE__, __LINE__, #later " is later than " #earlier)
/* The reason has that word in it, if the store has reasons. */
#define CHECK_REASON(word, reason)                                                       \
    CHECK(guarantees()->reasons == 0 || strstr((reason), (word)) != NULL)
/* So many wait; without a queue they need not be seen. */
#define CHECK_WAITERS(p, name, n)                                                        \
    tap_check(fair() ? waiters_of((p), (name)) == (n) : waiters_of((p), (name)) <= (n),  \
              __FILE__, __LINE__, "so many wait for " #name ": " #n)

/* The last error is one line, names the store by its address or at least its driver, and
 * keeps its password to itself. */
void check_sentence(void);

/* As picket_open. */
enum picket_status open_as(const struct picket_options *o, struct picket **out);
/* NULL when it can't be opened; for workers. */
struct picket *try_open(uint32_t ttl_ms);
struct picket *open_client(uint32_t ttl_ms);
struct picket_lock *take(struct picket *p, const char *name);
struct picket_lock *enqueue(struct picket *p, const char *name,
                            const struct picket_acquire_options *o);
/* Within patience, by a push or by whatever the store has; with a token if it has any. */
void await_grant(struct picket_lock *l);
uint32_t waiters_of(struct picket *p, const char *name);
uint32_t holders_of(struct picket *p, const char *name);

/* Asks the runner to "stop" and "cont" the server (SIGSTOP), or to "kill" (-9) and
 * "restart" it, and waits until that is done. A case that fails half-way leaves the rest
 * to the runner. */
void control(const char *action);
/* Leaves the case where there is no server, or nobody to do that. */
void needs_control(void);
/* Opens a client that the runner can "mute" and "unmute": muted, the servers hear it, and
 * it hears nothing. Leaves the case where there is no such way to the store. */
struct picket *open_through(uint32_t ttl_ms);

bool readable(int fd, int timeout_ms);
uint64_t now_ms(void); /* CLOCK_BOOTTIME, as picket_safe_until_ms() */

/* ---- workers ---- */

struct worker {
    pid_t pid;
    int to, from;
};

#define MUST(cond) ((cond) ? (void)0 : die(__FILE__, __LINE__, #cond))
_Noreturn void die(const char *file, int line, const char *what);

/* Before the case opens its own clients: in the child of a process with threads, what
 * their libraries lock (getaddrinfo, for one) may stay locked for good. */
struct worker *hire(void (*job)(int in, int out, void *arg), void *arg);
/* Kills it as hard as can be, and sees it dead. */
void fire(struct worker *w);
/* Stops it (SIGSTOP), but not within its turn at the embedded store: that would keep
 * everybody out. */
void freeze(const struct worker *w);
/* Sees it end by itself, and returns its status. */
int dismiss(struct worker *w);
void tell(const struct worker *w, char byte);
int hear(const struct worker *w); /* 0: it has ended; -1: nothing came in time */
/* In a worker. */
void say(int out, char byte);
void await(int in, char byte);

/* Zeroed memory that workers hired later share with us. */
void *share(size_t size);

#endif
