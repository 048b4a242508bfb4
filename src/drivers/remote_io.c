/* SPDX-License-Identifier: MIT */
/*
 * The thread that keeps a line to the leader: it connects, greets, reads answers and
 * events, and when the line is dead or leads to somebody else it takes the next one and
 * sends again what was not answered, with the same bytes (P8).
 *
 *     NONE --dial--> DIALLING --connected--> GREETING --HELLO answered--> OPEN
 *      ^                |                       |                          |
 *      +---- pause -----+--- refused, silent ---+--- dead, NOTLEADER ------+
 *
 * A line is needed while a call is unanswered, a lease is attended or a watch is open;
 * without any of these nothing is dialled. Every node that is asked in vain makes the
 * next pause longer, with jitter; any answer from the machine makes it short again.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/keeper.h"
#include "core/door.h"
#include "drivers/remote.h"
#include "host/clock.h"
#include "host/fd.h"
#include "proto/proto.h"

enum {
    DIAL_MS = 1000,   /* for one address to accept */
    IDLE_MS = 5000,   /* without a word, while somebody relies on being told */
    PAUSE_MIN_MS = 5, /* between attempts */
    PAUSE_MAX_MS = 500,
    SILENCE_MIN_MS = 500,
    SILENCE_MAX_MS = 2000,
    HOPS_MAX = 3,                       /* from node to node without a pause */
    INBOX_MAX = 65536,                  /* events, */
    INBOX_BYTES_MAX = 16 * 1024 * 1024, /* and what is in them */
};

/* ---- news ---- */

void pk_remote_tell(struct pk_store *s)
{
    if (!s->told) {
        s->told = true;
        pk_fd_poke(s->news_fd);
    }
}

/* When something that we are told now happened, by our clock: never too late, since
 * max-hold counts from here. Cluster time does not run faster than 1 % beyond ours, and
 * stands still without a leader, so that at least that much has passed since the moment
 * that we know of both clocks. */
static uint64_t happened_ms(const struct pk_store *s, uint64_t tau_ms)
{
    const struct pk_moment *m = &s->moment;
    uint64_t at = s->known_ms;
    if (m->tau_ms != 0 && tau_ms > m->tau_ms) {
        uint64_t since = tau_ms - m->tau_ms;
        uint64_t then = m->local_ms + since - since / 100 - 1;
        at = then > at ? then : at;
    }
    uint64_t now = pk_clock_ms();
    return at < now ? at : now;
}

static void since_at_most(struct pk_store *s, uint64_t at_ms)
{
    bool first = s->inbox.count == 0 && !s->missed;
    if (first || at_ms < s->news_since_ms) {
        s->news_since_ms = at_ms;
    }
}

/* Some events are not known: whoever reads the news must look for itself. */
static void miss(struct pk_store *s, uint64_t since_ms)
{
    since_at_most(s, since_ms);
    s->missed = true;
    if (s->watching) {
        pk_effects_reset(&s->inbox); /* those before the gap would come after it */
        s->inbox_bytes = 0;
    }
    pk_remote_tell(s);
}

static void add_news(struct pk_store *s, const struct pk_effect *e)
{
    size_t bytes =
        sizeof *e + e->name.len + e->value.len + e->label.len + e->by.len + e->why.len;
    uint64_t at = happened_ms(s, e->since_ms);
    if (s->inbox.count == INBOX_MAX || s->inbox_bytes + bytes > INBOX_BYTES_MAX) {
        pk_effects_reset(&s->inbox); /* P10: nobody reads them */
        s->inbox_bytes = 0;
        miss(s, at < s->news_since_ms ? at : s->news_since_ms);
    }
    since_at_most(s, at);
    s->inbox_bytes += bytes;
    pk_effects_add(&s->inbox, e);
    pk_remote_tell(s);
}

static void take_event(struct pk_store *s, const struct pk_effect *e)
{
    if (s->watching && s->streaming) {
        add_news(s, e);
    } else if (s->lease != 0 && e->lease == s->lease) {
        add_news(s, e);
        if (e->kind == PK_EV_LEASE_ENDED) {
            s->lease = 0; /* there is nothing more to be told */
            s->cut_off = false;
        }
    }
}

/* ---- sending ---- */

void pk_remote_nudge(struct pk_store *s)
{
    pk_fd_poke(s->nudge_fd);
}

/* Sees to it that the I/O thread is awake at that time. */
static void alarm_by(struct pk_store *s, uint64_t at_ms)
{
    if (at_ms < s->alarm_ms) {
        s->alarm_ms = at_ms;
        pk_timer_set(s->io_timer_fd, at_ms > 0 ? at_ms : 1); /* 0 would be never */
    }
}

static uint64_t silent_at(const struct pk_store *s)
{
    const struct pk_remote_ask *oldest = s->in_flight.first;
    if (oldest == NULL) {
        return UINT64_MAX;
    }
    uint64_t since = oldest->sent_ms > s->heard_ms ? oldest->sent_ms : s->heard_ms;
    return since + s->silence_ms;
}

/* Puts it on the line; flush sends it. */
static void put(struct pk_store *s, struct pk_remote_ask *a)
{
    pk_resp_raw(&s->link.out, a->bytes.data, a->bytes.len);
    a->sent_ms = pk_clock_ms();
    a->in_flight = true;
    pk_remote_asks_add(&s->in_flight, a);
}

static void flush(struct pk_store *s)
{
    bool alive = pk_link_flush(&s->link);
    alarm_by(s, silent_at(s));
    if (!alive || pk_link_unsent(&s->link)) {
        pk_remote_nudge(s); /* to hang up, or to go on when there is room */
    }
}

static void put_words(struct pk_store *s, enum pk_remote_ask_kind kind,
                      const char *const *words, size_t n)
{
    struct pk_remote_ask *a = pk_remote_ask_new(s, kind);
    pk_resp_array(&a->bytes, n);
    for (size_t i = 0; i < n; i++) {
        pk_resp_text(&a->bytes, words[i]);
    }
    put(s, a);
}

static bool may_send(const struct pk_store *s)
{
    return s->line == PK_LINE_OPEN && pk_clock_ms() >= s->again_ms;
}

void pk_remote_send(struct pk_store *s, struct pk_remote_ask *a)
{
    if (may_send(s) && s->unsent.first == NULL) {
        put(s, a);
        flush(s);
    } else {
        pk_remote_asks_add(&s->unsent, a);
        pk_remote_nudge(s);
    }
}

static void put_unsent(struct pk_store *s)
{
    struct pk_remote_ask *a;
    while ((a = s->unsent.first) != NULL) {
        pk_remote_asks_remove(&s->unsent, a);
        put(s, a);
    }
}

/* ---- the line's end ---- */

static void note_trouble(struct pk_store *s, const char *why)
{
    (void)snprintf(s->trouble, sizeof s->trouble, "%s: %s", s->place.text, why);
}

static void pause_a_while(struct pk_store *s)
{
    s->failures++;
    s->again_ms = pk_clock_ms() +
                  pk_backoff_ms(s->failures, PAUSE_MIN_MS, PAUSE_MAX_MS, pk_random());
}

/* What was in flight may have been done or not: it is sent again, in its old order. */
static void take_back(struct pk_store *s)
{
    struct pk_remote_asks flown = s->in_flight;
    s->in_flight = (struct pk_remote_asks){0};
    struct pk_remote_asks again = {0};
    for (struct pk_remote_ask *a = flown.first, *next; a != NULL; a = next) {
        next = a->next;
        if (a->kind != PK_REMOTE_ASK_CALL || a->abandoned) {
            pk_remote_ask_drop(s, a);
            continue;
        }
        a->in_flight = false;
        a->maybe = true;
        pk_remote_asks_add(&again, a);
    }
    if (again.first != NULL) {
        again.last->next = s->unsent.first;
        s->unsent.first = again.first;
        s->unsent.last = s->unsent.last != NULL ? s->unsent.last : again.last;
    }
}

/* From now on events of our lease may go by unheard. */
static void cut_off(struct pk_store *s, uint64_t since_ms)
{
    if (s->lease != 0 && !s->cut_off) {
        s->cut_off = true;
        s->cut_since_ms = since_ms;
    }
}

/* The line is open: the client asks over it what it has missed. */
static void ask_for_missed(struct pk_store *s)
{
    if (s->cut_off) {
        s->cut_off = false;
        miss(s, s->cut_since_ms);
    }
}

void pk_remote_mistrust(struct pk_store *s)
{
    cut_off(s, s->known_before_ms); /* the last answer may be younger than the gap */
    if (s->line == PK_LINE_OPEN) {
        ask_for_missed(s);
    }
}

static void close_line(struct pk_store *s)
{
    pk_link_hang_up(&s->link);
    take_back(s);
    s->line = PK_LINE_NONE;
    s->owned = 0;
    cut_off(s, s->known_ms);
    s->streaming = false;
}

static void give_up(struct pk_store *s, const char *why)
{
    if (s->line == PK_LINE_OPEN) {
        s->detour = false;
    } else if (s->guest) {
        s->detour = true; /* others reach the leader, we don't: let them pass it on */
    }
    note_trouble(s, why);
    close_line(s);
    s->turn = (s->turn + 1) % s->places.count;
    pause_a_while(s);
}

/* Goes where a node said that the leader is. Two nodes that name each other must not make
 * us run in circles. */
static void follow(struct pk_store *s, const struct pk_place *leader)
{
    note_trouble(s, "not the leader");
    close_line(s);
    s->place = *leader;
    s->invited = true;
    if (++s->hops > HOPS_MAX) {
        pause_a_while(s);
    }
}

/* ---- the line's beginning ---- */

static void dial_next(struct pk_store *s)
{
    if (pk_link_dial(&s->link)) {
        s->line = PK_LINE_DIALLING;
        s->dialled_ms = pk_clock_ms();
    } else {
        give_up(s, s->link.trouble);
    }
}

/* Looking up a name can take long, so it is done without the mutex; nobody else touches
 * the link while there is no line. */
static void dial(struct pk_store *s)
{
    if (!s->invited) {
        s->place = s->places.list[s->turn];
    }
    s->guest = s->invited;
    s->invited = false;
    struct pk_place place = s->place;
    pthread_mutex_unlock(&s->mutex);
    bool found = pk_link_find(&s->link, &place);
    pthread_mutex_lock(&s->mutex);
    if (found) {
        dial_next(s);
    } else {
        give_up(s, s->link.trouble);
    }
}

static void greet(struct pk_store *s)
{
    static const char *const hello[] = {"HELLO", "3"};
    const char *const redirect[] = {"CLIENT", "REDIRECT", s->detour ? "OFF" : "ON"};
    s->line = PK_LINE_GREETING;
    s->heard_ms = pk_clock_ms();
    put_words(s, PK_REMOTE_ASK_HELLO, hello, 2);
    put_words(s, PK_REMOTE_ASK_REDIRECT, redirect, 3);
    flush(s);
}

static void open_line(struct pk_store *s)
{
    static const char *const watch[] = {"LOCK", "WATCH"};
    s->line = PK_LINE_OPEN;
    s->again_ms = 0;
    if (s->watching) {
        put_words(s, PK_REMOTE_ASK_WATCH, watch, 2);
    }
    ask_for_missed(s);
    put_unsent(s);
    flush(s);
}

/* ---- answers ---- */

static void finish(struct pk_remote_ask *a, enum picket_status status)
{
    a->status = status;
    a->done = true;
    pthread_cond_signal(&a->answered);
}

/* The machine has spoken: this is the leader, and it is well. */
static void note_answer(struct pk_store *s, const struct pk_remote_ask *a,
                        const struct pk_effect *r)
{
    bool renews = a->kind == PK_REMOTE_ASK_CALL &&
                  (a->verb == PK_LEASE_OPEN || a->verb == PK_LEASE_RENEW);
    s->failures = 0;
    s->hops = 0;
    s->trouble[0] = '\0';
    s->known_before_ms = s->known_ms;
    s->known_ms = a->sent_ms;
    if (r->since_ms != 0 && (renews || a->only_reads)) {
        s->moment = (struct pk_moment){a->sent_ms, r->since_ms};
    }
    if (renews && (r->status == PK_LOST || r->status == PK_NOTFOUND) &&
        r->lease == s->lease) {
        s->lease = 0; /* there is nothing more to be told */
        s->cut_off = false;
    }
    if (!renews || r->status != PK_OK) {
        return;
    }
    if (a->verb == PK_LEASE_OPEN || r->lease == s->lease) {
        s->owned = r->lease;
    }
    if (a->verb == PK_LEASE_OPEN || r->lease == s->lease) {
        /* Who has little time must notice a dead leader sooner. */
        uint64_t quarter = r->left_ms / 4;
        s->silence_ms = quarter < SILENCE_MIN_MS   ? SILENCE_MIN_MS
                        : quarter > SILENCE_MAX_MS ? SILENCE_MAX_MS
                                                   : quarter;
    }
}

static void take_reply(struct pk_store *s, struct pk_remote_ask *a)
{
    const struct pk_effect *r = &s->scratch.list[0];
    note_answer(s, a, r);
    if (a->kind != PK_REMOTE_ASK_CALL || a->abandoned) {
        pk_remote_ask_drop(s, a);
        return;
    }
    struct pk_effects theirs = a->answer; /* swapped: nothing is copied or allocated */
    a->answer = s->scratch;
    s->scratch = theirs;
    finish(a, PICKET_OK);
}

/* An answer that is no reply of the machine's; only those of our own requests may be. */
static void take_strange(struct pk_store *s, struct pk_remote_ask *a,
                         struct pk_bytes whole)
{
    enum pk_remote_ask_kind kind = a->kind;
    struct pk_resp_cursor cursor = {.rest = whole};
    bool map = pk_resp_next(&cursor).type == PK_RESP_MAP;
    if (kind == PK_REMOTE_ASK_CALL) {
        pk_remote_asks_add_first(&s->in_flight, a);
        give_up(s, "an answer that has nothing to do with the question");
        return;
    }
    pk_remote_ask_drop(s, a);
    if (kind == PK_REMOTE_ASK_HELLO && !map) {
        give_up(s, "no Picket server: it does not speak RESP3");
    } else if (kind == PK_REMOTE_ASK_REDIRECT) {
        open_line(s);
    } else if (kind == PK_REMOTE_ASK_WATCH) {
        s->streaming = true;
        if (s->streamed) {
            miss(s, 0);
        }
        s->streamed = true;
        s->failures = 0;
        s->hops = 0;
        s->trouble[0] = '\0';
        pthread_cond_broadcast(&s->began);
    }
}

/* It was not answered and will be sent again: as the first, as those that were in flight
 * behind it have been taken back already. */
static void send_again(struct pk_store *s, struct pk_remote_ask *a)
{
    if (a->kind != PK_REMOTE_ASK_CALL || a->abandoned) {
        pk_remote_ask_drop(s, a);
    } else {
        a->in_flight = false;
        pk_remote_asks_add_first(&s->unsent, a);
    }
}

/* The same a while later over this very line. */
static void send_later(struct pk_store *s, struct pk_remote_ask *a)
{
    if (a->abandoned) {
        pk_remote_ask_drop(s, a);
    } else {
        a->in_flight = false;
        pk_remote_asks_add(&s->unsent, a);
    }
    if (pk_clock_ms() >= s->again_ms) { /* one pause for all that is refused at once */
        pause_a_while(s);
    }
}

/* Not here: at the place named, or anywhere else. */
static void go_away(struct pk_store *s, struct pk_remote_ask *a, struct pk_bytes detail,
                    const char *why)
{
    struct pk_place leader;
    struct pk_bytes first = detail;
    const char *blank = memchr(detail.data, ' ', detail.len);
    if (blank != NULL) {
        first.len = (uint32_t)(blank - detail.data);
    }
    if (pk_place_read(first, PK_REMOTE_PORT, &leader) == NULL &&
        memchr(first.data, ':', first.len)) {
        follow(s, &leader);
    } else {
        give_up(s, why);
    }
    send_again(s, a);
}

static void take_refusal(struct pk_store *s, struct pk_remote_ask *a,
                         struct pk_bytes text)
{
    struct pk_bytes detail = {"", 0};
    char why[256];
    enum pk_proto_error error = pk_proto_error_of(text, &detail);
    (void)snprintf(why, sizeof why, "%.*s", (int)text.len, text.data);
    if (error == PK_PROTO_ERROR_NOTLEADER) {
        go_away(s, a, detail, why);
    } else if (error == PK_PROTO_ERROR_NOLEADER) {
        give_up(s, why);
        send_again(s, a);
    } else if (a->kind == PK_REMOTE_ASK_REDIRECT) {
        pk_remote_ask_drop(s, a); /* it doesn't know the word, and relays */
        open_line(s);
    } else if (a->kind != PK_REMOTE_ASK_CALL) {
        pk_remote_ask_drop(s, a);
        give_up(s, why);
    } else if (error == PK_PROTO_ERROR_OVERLOAD || error == PK_PROTO_ERROR_UNKNOWN) {
        a->maybe = a->maybe || error == PK_PROTO_ERROR_UNKNOWN;
        note_trouble(s, why);
        send_later(s, a);
    } else if (a->abandoned) {
        pk_remote_ask_drop(s, a);
    } else {
        (void)snprintf(a->said, sizeof a->said, "%s: %s", s->place.text, why);
        s->trouble[0] = '\0';
        finish(a, PICKET_STORE);
    }
}

/* The node has missed events itself, or others act for our lease and are told of it
 * instead of us. */
static void take_gap(struct pk_store *s)
{
    if (s->watching) {
        miss(s, 0);
    } else if (s->lease != 0) {
        pk_remote_mistrust(s);
    }
}

static void take_value(struct pk_store *s, struct pk_bytes whole)
{
    struct pk_bytes error = {"", 0};
    pk_effects_reset(&s->scratch);
    enum pk_proto_answer what = pk_proto_read_answer(whole, &s->scratch, &error);
    bool pushed = whole.data[0] == '>';
    if (what == PK_PROTO_EVENT) {
        take_event(s, &s->scratch.list[0]);
    } else if (what == PK_PROTO_GAP) {
        take_gap(s);
    } else if (what == PK_PROTO_BROKEN) {
        give_up(s, "an answer that makes no sense");
    } else if (!pushed) {
        struct pk_remote_ask *a = s->in_flight.first;
        if (a == NULL) {
            give_up(s, "an answer to no question");
            return;
        }
        pk_remote_asks_remove(&s->in_flight, a);
        if (what == PK_PROTO_REPLY && a->kind != PK_REMOTE_ASK_HELLO) {
            take_reply(s, a);
        } else if (what == PK_PROTO_REFUSED) {
            take_refusal(s, a, error);
        } else {
            take_strange(s, a, whole);
        }
    } /* a push that is none of ours is not for us */
}

/* ---- the loop ---- */

static void read_line(struct pk_store *s)
{
    if (!pk_link_fill(&s->link)) {
        give_up(s, s->link.trouble);
        return;
    }
    s->heard_ms = pk_clock_ms();
    struct pk_bytes whole;
    enum pk_resp_got got = PK_RESP_MORE;
    while (s->line >= PK_LINE_GREETING &&
           (got = pk_link_next(&s->link, &whole)) == PK_RESP_ONE) {
        take_value(s, whole);
    }
    if (s->line >= PK_LINE_GREETING && got == PK_RESP_BAD) {
        give_up(s, "no Picket server: it does not speak RESP");
    }
}

static void dialled(struct pk_store *s)
{
    if (pk_link_connected(&s->link)) {
        greet(s);
    } else {
        dial_next(s);
    }
}

static bool needed(const struct pk_store *s)
{
    return s->unsent.first != NULL || s->lease != 0 || s->watching;
}

static bool relied_on(const struct pk_store *s)
{
    return s->line == PK_LINE_OPEN && s->in_flight.first == NULL &&
           (s->lease != 0 || s->watching);
}

/* Does what is due by the clock. What has come was read before: a process that was
 * stopped must not take its own pause for the node's. */
static void do_due(struct pk_store *s)
{
    static const char *const ping[] = {"PING"};
    uint64_t now = pk_clock_ms();
    if (s->line == PK_LINE_NONE && needed(s) && now >= s->again_ms) {
        dial(s);
    } else if (s->line == PK_LINE_DIALLING && now >= s->dialled_ms + DIAL_MS) {
        (void)snprintf(s->link.trouble, sizeof s->link.trouble,
                       "no connection within %d ms", DIAL_MS);
        dial_next(s);
    } else if (s->line >= PK_LINE_GREETING && now >= silent_at(s)) {
        char why[64];
        (void)snprintf(why, sizeof why, "no answer for %llu ms",
                       (unsigned long long)s->silence_ms);
        give_up(s, why);
    } else if (s->unsent.first != NULL && may_send(s)) {
        put_unsent(s);
        flush(s);
    } else if (relied_on(s) && now >= s->heard_ms + IDLE_MS) {
        put_words(s, PK_REMOTE_ASK_PING, ping, 1);
        flush(s);
    }
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* When do_due has something to do next. */
static uint64_t next_due(const struct pk_store *s)
{
    switch (s->line) {
    case PK_LINE_NONE:
        return needed(s) ? s->again_ms : UINT64_MAX;
    case PK_LINE_DIALLING:
        return s->dialled_ms + DIAL_MS;
    case PK_LINE_GREETING:
        return silent_at(s);
    default: {
        uint64_t send = s->unsent.first != NULL ? s->again_ms : UINT64_MAX;
        uint64_t ask = relied_on(s) ? s->heard_ms + IDLE_MS : UINT64_MAX;
        return earlier(silent_at(s), earlier(send, ask));
    }
    }
}

static void drain(int fd)
{
    uint64_t count;
    ssize_t n = read(fd, &count, sizeof count);
    (void)n; /* nothing there is fine */
}

/* Sleeps until the line, a nudge or the clock wants something. */
static int sleep_on(struct pk_store *s)
{
    struct pollfd fds[] = {{.fd = s->link.fd, .events = POLLIN},
                           {.fd = s->nudge_fd, .events = POLLIN},
                           {.fd = s->io_timer_fd, .events = POLLIN}};
    if (s->line == PK_LINE_DIALLING || pk_link_unsent(&s->link)) {
        fds[0].events = (short)(POLLIN | POLLOUT);
    }
    alarm_by(s, next_due(s));
    pthread_mutex_unlock(&s->mutex);
    int n = poll(fds, sizeof fds / sizeof fds[0], -1);
    PK_ASSERT(n >= 0 || errno == EINTR);
    pthread_mutex_lock(&s->mutex);
    if (n > 0 && fds[1].revents != 0) {
        drain(s->nudge_fd);
    }
    if (n > 0 && fds[2].revents != 0) {
        drain(s->io_timer_fd);
        s->alarm_ms = UINT64_MAX;
    }
    return n > 0 ? fds[0].revents : 0;
}

void *pk_remote_run(void *store)
{
    struct pk_store *s = store;
    pthread_mutex_lock(&s->mutex);
    while (!s->stopping) {
        int ready = sleep_on(s);
        if (s->line == PK_LINE_DIALLING && ready != 0) {
            dialled(s);
        } else if (s->line >= PK_LINE_GREETING && (ready & ~POLLOUT) != 0) {
            read_line(s); /* first: a node that hangs up may have said why */
        }
        if (s->line >= PK_LINE_GREETING && !pk_link_flush(&s->link)) {
            give_up(s, s->link.trouble);
        }
        do_due(s);
    }
    close_line(s);
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}
