/* SPDX-License-Identifier: MIT */
#include "cli/grant.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/argv.h"
#include "cli/cli.h"
#include "cli/notice.h"
#include "cli/rows.h"
#include "cli/signals.h"
#include "cli/values.h"
#include "client/url.h"
#include "core/door.h"
#include "host/clock.h"
#include "host/memory.h"

enum {
    PATIENCE_MS = 1000,  /* before a terminal is told what we wait for */
    LABEL_ENOUGH = 1024, /* bytes: more than a label has */
    OBSTACLE_ROOM = PK_NAME_MAX + PK_OWNER_ROOM + 80,
};

#define AT(field) offsetof(struct pk_grant, field)

const struct pk_option pk_grant_options[] = {
    {PK_OPTION_FIXED, 'n', "nonblock", NULL,
     "don't wait: fail at once if it is held, or when\nthe store can't be reached "
     "within 3s",
     AT(wait_ms), 0, 0},
    {PK_OPTION_WAIT, 'w', "wait", "TIME",
     "wait at most so long: 500ms, 2m, or seconds\nwithout a unit (default: for ever); "
     "who loses "
     "its\nplace with its lease meanwhile queues again",
     AT(wait_ms), 0, PK_WAIT_MAX_MS},
    {PK_OPTION_NUMBER, 'E', "conflict-exit-code", "N",
     "exit with N when busy or not granted in time\n(default: 124)", AT(conflict_code), 1,
     255},
    {PK_OPTION_SPAN, 0, "max-hold", "TIME",
     "the service ends the hold after so long, renewals\nor not (default: never)",
     AT(max_hold_ms), 1, PK_HOLD_MAX_MS},
    {PK_OPTION_SPAN, 0, "margin", "TIME",
     "how long before the lease's end the lock counts as\nlost (default and least: 2 % "
     "of "
     "the TTL + 50ms)",
     AT(margin_ms), 1, PK_TTL_MAX_MS},
    {PK_OPTION_TEXT, 0, "note", "TEXT",
     "shown to others beside user, host, pid and program", AT(note), 0, 0},
    {PK_OPTION_TEXT, 0, "label", "WHAT",
     "program: others see the program's name (the default);\ncommand: with its "
     "arguments ($PICKET_LABEL)",
     AT(label), 0, 0},
    {PK_OPTION_TEXT, 0, "require", "CLASS",
     "correctness or efficiency: refuse stores that\npromise less", AT(require), 0, 0},
    {0},
};

const struct pk_option pk_grant_kinds[] = {
    {PK_OPTION_FIXED, 's', "shared", NULL, "share with others who share", AT(mode),
     PICKET_SHARED, 0},
    {PK_OPTION_FIXED, 'x', "exclusive", NULL, "share with nobody (the default)", AT(mode),
     PICKET_EXCLUSIVE, 0},
    {PK_OPTION_NUMBER, 0, "slots", "N", "a semaphore: up to N holders at a time",
     AT(slots), 1, PK_SLOTS_MAX},
    {PK_OPTION_LIST, 0, "also", "LOCK",
     "this lock too, all or nothing, with one token for\nall; may be repeated", AT(also),
     0, 0},
    {0},
};

static int check_label(struct pk_grant *g)
{
    const char *given = g->label != NULL ? g->label : getenv("PICKET_LABEL");
    g->label = given != NULL && given[0] != '\0' ? given : "program";
    bool known = strcmp(g->label, "program") == 0 || strcmp(g->label, "command") == 0;
    return known ? 0
                 : pk_errors_fail("--label \"%s\" is neither program nor command; see "
                                  "also $PICKET_LABEL",
                                  g->label);
}

int pk_grant_check(struct pk_grant *g)
{
    if (g->slots > 0 && g->mode == PICKET_SHARED) {
        return pk_errors_fail(
            "-s and --slots exclude each other; say which one you mean");
    }
    if (g->also.count + 1 > PK_SET_MAX) {
        return pk_errors_fail("a set has at most %d locks; leave out some --also",
                              PK_SET_MAX);
    }
    if (g->slots > 0) {
        g->mode = PICKET_SLOT;
    }
    int code = pk_cli_check_class(g->require);
    if (code == 0) {
        code = check_label(g);
    }
    return code == 0 ? -1 : code;
}

/* What others see of the job, or of us; NULL: our program's name. To be freed. */
static char *describe_program(const struct pk_grant *g)
{
    bool whole = g->label != NULL && strcmp(g->label, "command") == 0;
    if (g->job == NULL) {
        return whole ? pk_argv_shown() : NULL;
    }
    const char *slash = strrchr(g->job[0], '/');
    char *text = pk_memory_copy(whole || slash == NULL ? g->job[0] : slash + 1);
    for (size_t i = 1; whole && g->job[i] != NULL && strlen(text) < LABEL_ENOUGH; i++) {
        char *word = pk_url_redact(g->job[i]);
        char *longer = pk_memory_print("%s %s", text, word);
        free(word);
        free(text);
        text = longer;
    }
    return text;
}

/* A store without lock-delay gets leases that are longer by it, and we stop believing in
 * them as much earlier: whoever comes after an expiry waits just as long. */
static void stretch(struct pk_grant *g, struct picket_options *o)
{
    uint64_t ttl = g->ttl_ms + g->lock_delay_ms;
    o->ttl_ms = (uint32_t)(ttl < PK_TTL_MAX_MS ? ttl : PK_TTL_MAX_MS);
    o->margin_ms = (uint32_t)(g->margin_ms + g->lock_delay_ms);
    g->lock_delay_ms = 0;
}

/* While the store is asked: a lock is waited for elsewhere. */
static void start_notice(struct pk_notice *n, const struct pk_grant *g)
{
    char text[sizeof g->store + 80];
    (void)snprintf(text, sizeof text, "waiting for an answer from the store %s",
                   g->store);
    pk_notice_start(n, text);
}

int pk_grant_open(const struct pk_common *c, struct pk_grant *g, struct picket **out)
{
    struct picket_options o = {
        .ttl_ms = (uint32_t)g->ttl_ms,
        .grace_ms = (uint32_t)g->grace_ms,
        .margin_ms = (uint32_t)g->margin_ms,
        .note = g->note,
        .require = g->require,
    };
    struct pk_notice notice;
    char *program = describe_program(g);
    char *shown = pk_cli_shown_url(c);
    (void)snprintf(g->store, sizeof g->store, "%s", shown);
    free(shown);
    start_notice(&notice, g);
    int code = pk_cli_open_for(c, &o, program, out);
    if (code == 0 && g->lock_delay_ms > 0 && picket_guarantees(*out)->lock_delay == 0) {
        picket_close(*out);
        stretch(g, &o);
        code = pk_cli_open_for(c, &o, program, out);
    }
    pk_notice_stop(&notice);
    free(program);
    return code;
}

static enum picket_status enqueue(struct picket *p, const struct pk_grant *g,
                                  int64_t wait_ms, struct picket_lock **out)
{
    struct picket_want wants[PK_SET_MAX];
    struct picket_acquire_options o = {
        .wait_ms = wait_ms,
        .max_hold_ms = g->max_hold_ms,
        .lock_delay_ms = (uint32_t)g->lock_delay_ms,
        .value = g->value,
        .value_len = g->value != NULL ? strlen(g->value) : 0,
    };
    for (size_t i = 0; i <= g->also.count; i++) {
        wants[i].name = i == 0 ? g->name : g->also.at[i - 1];
        wants[i].mode = (enum picket_mode)g->mode;
        wants[i].slots = (uint32_t)g->slots;
    }
    return picket_enqueue(p, wants, g->also.count + 1, &o, out);
}

/* What is in the way of the first lock of the set that has something in its way: "db,
 * held by bob@web1 pid 7 (backup.sh) for 3s", with `place` our place in its queue (0:
 * none). Knowing is a comfort: when the store can't say, it is the name alone. */
static void describe(struct picket *p, const struct pk_grant *g, char buf[OBSTACLE_ROOM],
                     uint32_t *place)
{
    char owner[PK_OWNER_ROOM];
    char span[PK_SPAN_ROOM];
    bool found = false;
    (void)snprintf(buf, OBSTACLE_ROOM, "%s", g->name);
    for (size_t i = 0; i <= g->also.count && !found; i++) {
        struct picket_view *v;
        if (picket_show(p, i == 0 ? g->name : g->also.at[i - 1], &v) != PICKET_OK) {
            return;
        }
        const struct picket_row *holder = pk_rows_holder(v);
        found = holder != NULL || v->closed_ms > 0;
        if (holder != NULL) {
            (void)snprintf(buf, OBSTACLE_ROOM, "%s, held by %s for %s", v->name,
                           pk_rows_owner(holder, owner),
                           pk_values_span(holder->for_ms, span));
        } else if (found) {
            (void)snprintf(buf, OBSTACLE_ROOM,
                           "%s, closed for another %s after a holder was lost", v->name,
                           pk_values_span(v->closed_ms, span));
        }
        *place = 0;
        for (size_t r = 0; r < v->n_rows; r++) {
            *place = v->rows[r].lease == picket_lease(p) ? v->rows[r].place : *place;
        }
        if (*place == 0 && v->more) {
            *place = v->waiters; /* not among the rows: about the last */
        }
        picket_view_free(v);
    }
}

static void tell_waiting(struct picket *p, const struct pk_grant *g)
{
    char obstacle[OBSTACLE_ROOM];
    char before[24] = "nobody";
    uint32_t place = 0;
    describe(p, g, obstacle, &place);
    if (place > 1) {
        (void)snprintf(before, sizeof before, "%" PRIu32, place - 1);
    }
    pk_errors_remark("waiting for %s, %s before you", obstacle, before);
}

/* Says why the lock was not granted; returns the exit code. */
static int tell_refused(struct picket *p, const struct pk_grant *g, enum picket_status s)
{
    char obstacle[OBSTACLE_ROOM];
    char span[PK_SPAN_ROOM];
    uint32_t place;
    if (s != PICKET_TIMEOUT) {
        int code = pk_errors_status(s);
        return code == PK_EXIT_BUSY   ? (int)g->conflict_code
               : code == PK_EXIT_LOST ? PK_EXIT_ERROR /* there was no lock to lose yet */
                                      : code;
    }
    describe(p, g, obstacle, &place);
    pk_errors_remark("not granted within %s: %s",
                     pk_values_span((uint64_t)g->wait_ms, span), obstacle);
    return (int)g->conflict_code;
}

/* Whether the wait is to end; *signo is the signal that asks for it, 0 if none does. */
static bool interrupted(const struct pollfd *gone, int signal_fd, int *signo)
{
    struct signalfd_siginfo info;
    *signo = 0;
    while (signal_fd >= 0 && pk_signals_next(signal_fd, &info)) {
        if (pk_signals_ends(&info)) {
            *signo = (int)info.ssi_signo;
            return true;
        }
    }
    return gone->revents != 0;
}

/* Waits for the queue. OK, CANCELLED with *signo, or what the wait ended with. */
static enum picket_status await(struct picket *p, const struct pk_grant *g,
                                const struct pk_grant_wait *w, struct picket_lock *l,
                                int *signo)
{
    struct pollfd fds[] = {{.fd = picket_ready_fd(l), .events = POLLIN},
                           {.fd = w->signal_fd, .events = POLLIN},
                           {.fd = w->gone_fd, .events = POLLIN}};
    bool tell = !pk_errors_quiet() && (pk_errors_verbose() || isatty(STDERR_FILENO) == 1);
    int patience = pk_errors_verbose() ? 0 : PATIENCE_MS;
    if (fds[0].fd < 0) {
        return PICKET_LIMIT; /* poll would wait for ever */
    }
    for (;;) {
        int n = poll(fds, 3, tell ? patience : -1);
        PK_ASSERT(n >= 0 || errno == EINTR);
        if (n > 0 && interrupted(&fds[2], w->signal_fd, signo)) {
            return PICKET_CANCELLED; /* closing the handle gives up the place */
        }
        if (n > 0 && fds[0].revents != 0) {
            return picket_wait(l, 0);
        }
        if (n == 0) {
            tell_waiting(p, g);
            tell = false;
        }
    }
}

/* Joins the queue and waits in it, at most wait_ms. The handle in `l` is to be closed,
 * however it ends. */
static enum picket_status join(struct picket *p, const struct pk_grant *g,
                               const struct pk_grant_wait *w, int64_t wait_ms,
                               struct picket_lock **l, int *signo)
{
    struct pk_notice notice;
    start_notice(&notice, g);
    enum picket_status s = enqueue(p, g, wait_ms, l);
    pk_notice_stop(&notice);
    if (w->lease != NULL) {
        atomic_store(w->lease, picket_lease(p));
    }
    return s == PICKET_OK ? await(p, g, w, *l, signo) : s;
}

/* What is left of the time to wait, in the words of wait_ms. */
static int64_t left_to_wait(const struct pk_grant *g, uint64_t began_ms)
{
    uint64_t waited = pk_clock_ms() - began_ms;
    return g->wait_ms < 0                  ? PICKET_FOREVER
           : waited < (uint64_t)g->wait_ms ? g->wait_ms - (int64_t)waited
                                           : 0;
}

int pk_grant_take(struct picket *p, const struct pk_grant *g,
                  const struct pk_grant_wait *w, struct picket_lock **out)
{
    struct picket_lock *l = NULL;
    int signo = 0;
    uint64_t began = pk_clock_ms();
    int64_t left = g->wait_ms;
    enum picket_status s = join(p, g, w, left, &l, &signo);
    /* Only a place in the queue has gone with the lease: who has time takes another. */
    while (s == PICKET_LOST && (left = left_to_wait(g, began)) != 0) {
        pk_errors_remark("the place in the queue of %s was lost (%s); queueing again",
                         g->name, picket_last_error());
        picket_lock_close(l);
        l = NULL;
        s = join(p, g, w, left, &l, &signo);
    }
    s = s == PICKET_LOST && g->wait_ms > 0 ? PICKET_TIMEOUT : s;
    if (s == PICKET_OK) {
        pk_errors_detail("%s is yours: token %" PRIu64 ", lease %" PRIu64, g->name,
                         picket_token(l), picket_lease(p));
        *out = l;
        return 0;
    }
    int code = PK_EXIT_SIGNAL + signo;
    if (s == PICKET_CANCELLED) {
        pk_errors_detail("no longer waiting for %s", g->name);
    } else {
        code = tell_refused(p, g, s);
    }
    picket_lock_close(l);
    return code;
}
