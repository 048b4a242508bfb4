/* SPDX-License-Identifier: MIT */
/*
 * One leads, the others stand by, and anybody can see who it is.
 *
 * In three terminals:
 *     $ leader here:8001            leading as here:8001, token 1
 *     $ leader here:8002            standing by
 *     $ leader --observe            here:8001 leads, token 1
 *
 * Ctrl-C ends the first, and the second leads at once; after kill -9 it does when the
 * lease has run out, 5 s later.
 *
 * SIGSTOP the leader for more than 2 s: the standby leads. Woken up, the old leader finds
 * itself deposed: 123. It does not stand again in the same process; who started it does
 * that (Restart=always), so nothing of the old reign goes on by mistake. Its work, here a
 * heartbeat in a register, is fenced: a pause just before the write is caught there: 1.
 *
 * Exit codes: 0 ended by a signal; 1 refused by the fence; 123 deposed; 125 an error.
 */
#include <inttypes.h>
#include <picket.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { TTL_MS = 5000, BEAT_MS = 200 };

static const char office[] = "examples/leader";
static volatile sig_atomic_t asked_to_end;

static void on_signal(int number)
{
    (void)number;
    asked_to_end = 1;
}

static int explain(enum picket_status s)
{
    (void)fprintf(stderr, "leader: %s\n", picket_last_error());
    if (s == PICKET_STALE) {
        return 1;
    }
    return s == PICKET_LOST || s == PICKET_AT_RISK ? 123 : 125;
}

/* One step of a leader's work: guarded on our side, fenced on the other. */
static enum picket_status beat(struct picket *p, struct picket_lock *lock, int count)
{
    char text[64];
    uint64_t token = picket_token(lock);
    int len = snprintf(text, sizeof text, "beat %d of token %" PRIu64, count, token);
    enum picket_status s = picket_checkpoint(lock, BEAT_MS);
    return s != PICKET_OK
               ? s
               : picket_fence_set(p, "examples/beat", token, text, (size_t)len, NULL);
}

static enum picket_status lead(struct picket *p, struct picket_lock *lock)
{
    struct pollfd lost = {.fd = picket_loss_fd(lock), .events = POLLIN};
    enum picket_status s = PICKET_OK;
    for (int i = 1; s == PICKET_OK && !asked_to_end; i++) {
        s = beat(p, lock, i);
        (void)poll(&lost, 1, BEAT_MS); /* a signal or a loss ends the wait early */
    }
    return s;
}

static enum picket_status stand(struct picket *p, const char *value)
{
    const struct picket_want want = {.name = office};
    const struct picket_acquire_options options = {
        .wait_ms = PICKET_FOREVER, .value = value, .value_len = strlen(value)};
    struct picket_lock *lock;
    enum picket_status s = picket_enqueue(p, &want, 1, &options, &lock);
    if (s == PICKET_OK && picket_state(lock) == PICKET_WAITING) {
        (void)printf("standing by\n");
    }
    while (s == PICKET_OK && picket_state(lock) == PICKET_WAITING && !asked_to_end) {
        /* With a limit, since a signal may come just before the poll. */
        struct pollfd ready = {.fd = picket_ready_fd(lock), .events = POLLIN};
        s = poll(&ready, 1, BEAT_MS) > 0 ? picket_wait(lock, 0) : PICKET_OK;
    }
    if (s != PICKET_OK || asked_to_end) {
        return s;
    }
    (void)printf("leading as %s, token %" PRIu64 "\n", value, picket_token(lock));
    return lead(p, lock);
}

/* Prints who leads, if that is news; the token tells one reign from the next. */
static enum picket_status tell_leader(struct picket *p, uint64_t *known)
{
    struct picket_view *view;
    enum picket_status s = picket_show(p, office, &view);
    if (s != PICKET_OK) {
        return s;
    }
    uint64_t token = view->holders > 0 ? view->rows[0].token : 0;
    if (token == 0 && *known != 0) {
        (void)printf("nobody leads\n");
    } else if (token != *known) {
        (void)printf("%s leads, token %" PRIu64 "\n", view->rows[0].value, token);
    }
    *known = token;
    picket_view_free(view);
    return PICKET_OK;
}

/* Opens the watch before it looks, so that nothing is missed in between. What it prints
 * was true when it looked, no more; only a fence knows who may write. */
static enum picket_status observe(struct picket *p)
{
    struct picket_watch *watch;
    struct picket_event event;
    uint64_t known = UINT64_MAX;
    enum picket_status s = picket_watch_open(p, office, &watch);
    if (s != PICKET_OK) {
        return s;
    }
    while (s == PICKET_OK) {
        s = tell_leader(p, &known);
        s = s == PICKET_OK ? picket_watch_next(watch, -1, &event) : s;
    }
    picket_watch_close(watch);
    return s;
}

int main(int argc, char **argv)
{
    struct picket *p;
    const struct picket_options options = {.ttl_ms = TTL_MS};
    if (argc != 2) {
        (void)fprintf(stderr, "usage: leader ADDRESS | leader --observe\n");
        return 125;
    }
    int observing = strcmp(argv[1], "--observe") == 0;
    const struct sigaction end = {.sa_handler = on_signal}; /* no SA_RESTART */
    if (!observing) {
        (void)sigaction(SIGINT, &end, NULL);
        (void)sigaction(SIGTERM, &end, NULL);
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* each line at once, also into a pipe */
    enum picket_status s = picket_open(NULL, &options, &p);
    if (s != PICKET_OK) {
        return explain(s);
    }
    s = observing ? observe(p) : stand(p, argv[1]);
    int code = s == PICKET_OK ? 0 : explain(s);
    picket_close(p); /* whoever stands by leads at once */
    return code;
}
