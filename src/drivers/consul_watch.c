/* SPDX-License-Identifier: MIT */
/*
 * Waiting: a blocking query for each claim of ours, as far as there are lines for them,
 * all in the keeper's thread. Who waits is told when the key is free; who holds, when the
 * key is no longer its own.
 *
 * Everybody who waits for a lock hears of its release at the same time. So each waits a
 * little longer, by chance, and whoever comes too late sees so by reading, without asking
 * for a change.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "client/keeper.h"
#include "core/door.h"
#include "drivers/consul.h"
#include "host/clock.h"
#include "host/fd.h"

enum {
    LINES_MAX = 16, /* Consul lets one address have 200 */
    QUERY_S = 30,
    QUERY_MS = 37000, /* Consul adds up to a sixteenth */
    JITTER_MS = 10,
    SHORT_MS = 500, /* a hold that is over by then is not worth a query */
    AGAIN_LEAST_MS = 50,
    AGAIN_MOST_MS = 5000,
    NOTE_MS = 1000, /* to ask why a hold is gone */
    EVENTS = 16,
};

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- libcurl's wishes ---- */

static int socket_wish(CURL *easy, curl_socket_t fd, int what, void *own, void *known)
{
    struct pk_consul *c = own;
    (void)easy;
    struct epoll_event e = {.data.fd = fd};
    e.events =
        (what & CURL_POLL_IN ? EPOLLIN : 0U) | (what & CURL_POLL_OUT ? EPOLLOUT : 0U);
    if (what == CURL_POLL_REMOVE) {
        (void)epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    } else if (epoll_ctl(c->epoll_fd, known == NULL ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd,
                         &e) == 0) {
        (void)curl_multi_assign(c->multi, fd, c);
    }
    return 0;
}

static int timer_wish(CURLM *multi, long ms, void *own)
{
    struct pk_consul *c = own;
    (void)multi;
    c->multi_at_ms = ms < 0 ? UINT64_MAX : pk_clock_ms() + (uint64_t)ms;
    return 0;
}

bool pk_consul_watch_open(struct pk_consul *c)
{
    c->multi_at_ms = UINT64_MAX;
    c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    c->multi = curl_multi_init();
    if (c->epoll_fd < 0 || c->multi == NULL) {
        return false;
    }
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, socket_wish);
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, timer_wish);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
    curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, (long)LINES_MAX);
    pk_consul_line_open(c, &c->look);
    return true;
}

static void hang_up(struct pk_consul *c, struct pk_consul_watch *w)
{
    if (w->running) {
        (void)curl_multi_remove_handle(c->multi, w->line.easy);
        w->running = false;
    }
}

static void free_watch(struct pk_consul *c, struct pk_consul_watch *w)
{
    hang_up(c, w);
    pk_consul_line_close(&w->line);
    (void)pk_door_resize(w, 0);
}

void pk_consul_watch_close(struct pk_consul *c)
{
    for (struct pk_consul_watch *w = c->watches, *next; w != NULL; w = next) {
        next = w->next;
        free_watch(c, w);
    }
    pk_consul_line_close(&c->look);
    if (c->multi != NULL) {
        (void)curl_multi_cleanup(c->multi);
    }
    pk_fd_close(&c->epoll_fd);
}

/* ---- for who talks ---- */

struct pk_consul_watch *pk_consul_watch_new(struct pk_consul *c, uint64_t lease,
                                            uint64_t request, const char *key,
                                            const char *session)
{
    struct pk_consul_watch *w = pk_door_resize(NULL, sizeof *w);
    *w = (struct pk_consul_watch){.lease = lease, .request = request, .parked = true};
    (void)snprintf(w->key, sizeof w->key, "%s", key);
    (void)snprintf(w->session, sizeof w->session, "%s", session);
    pthread_mutex_lock(&c->mutex);
    w->next = c->watches;
    c->watches = w;
    pthread_mutex_unlock(&c->mutex);
    return w;
}

bool pk_consul_watch_wait(struct pk_consul *c, struct pk_consul_watch *w, uint64_t seen)
{
    unsigned waiting = 0;
    pthread_mutex_lock(&c->mutex);
    for (const struct pk_consul_watch *at = c->watches; at != NULL; at = at->next) {
        waiting += !at->hold && !at->dropped;
    }
    w->hold = false;
    w->parked = false;
    w->from = seen;
    w->index = 0;
    pthread_mutex_unlock(&c->mutex);
    pk_bridge_wake(c->bridge);
    return waiting <= LINES_MAX;
}

void pk_consul_watch_hold(struct pk_consul *c, struct pk_consul_watch *w, uint64_t index,
                          uint64_t token)
{
    pthread_mutex_lock(&c->mutex);
    bool first = !w->hold;
    w->hold = true;
    w->parked = false;
    w->stir_ms = 0;
    w->from = w->index = index;
    w->token = first ? token : w->token;
    w->due_ms = first ? pk_clock_ms() + SHORT_MS : w->due_ms;
    pthread_mutex_unlock(&c->mutex);
    if (first) {
        pk_bridge_wake(c->bridge);
    }
}

void pk_consul_watch_drop(struct pk_consul *c, struct pk_consul_watch *w)
{
    pthread_mutex_lock(&c->mutex);
    w->dropped = true;
    bool idle = w->line.easy == NULL; /* the keeper's thread has never touched it */
    struct pk_consul_watch **at = &c->watches;
    while (idle && *at != w) {
        at = &(*at)->next;
    }
    if (idle) {
        *at = w->next;
    }
    pthread_mutex_unlock(&c->mutex);
    if (idle) {
        (void)pk_door_resize(w, 0);
    } else {
        pk_bridge_wake(c->bridge);
    }
}

/* ---- one query ---- */

static const struct pk_consul_ask query = {.method = "GET"};

static void begin(struct pk_consul *c, struct pk_consul_watch *w)
{
    char words[80];
    char path[PK_CONSUL_URL_ROOM];
    (void)snprintf(words, sizeof words, "?index=%" PRIu64 "&wait=%ds", w->from, QUERY_S);
    pk_consul_path(path, w->key, words);
    if (w->line.easy == NULL) {
        pk_consul_line_open(c, &w->line);
        curl_easy_setopt(w->line.easy, CURLOPT_PRIVATE, w);
        curl_easy_setopt(w->line.easy, CURLOPT_TIMEOUT_MS, (long)QUERY_MS);
    }
    struct pk_consul_ask a = query;
    a.path = path;
    pk_consul_line_set(c, &w->line, &a);
    w->running = curl_multi_add_handle(c->multi, w->line.easy) == CURLM_OK;
}

/* What the key's state means to a claim; mutex held. True: its hold is gone. */
static bool weigh(struct pk_consul_watch *w, const struct pk_consul_key *k)
{
    bool ours = strcmp(k->session, w->session) == 0;
    bool news = k->seen >= w->index; /* else it is older than our own write */
    /* An index that has gone back, as after a restore, is begun anew. */
    w->from = k->seen >= w->from ? k->seen : 0;
    if (w->hold && news && !ours) {
        w->parked = true;
        return true;
    }
    if (!w->hold && k->session[0] == '\0') {
        w->parked = true;
        w->stir_ms = pk_clock_ms() + pk_random() % (JITTER_MS + 1);
    }
    return false;
}

static void end(struct pk_consul *c, struct pk_consul_watch *w, CURLcode code)
{
    struct pk_consul_key k = {0};
    bool gone = false;
    hang_up(c, w);
    enum picket_status s = pk_consul_line_end(c, &w->line, &query, code);
    if (s == PICKET_OK) {
        s = pk_consul_key_read(c, &w->line, &k);
    }
    pthread_mutex_lock(&c->mutex);
    if (s != PICKET_OK || k.seen == 0) {
        w->failures += w->failures < 16;
        w->from = 0;
        w->due_ms = pk_clock_ms() + pk_backoff_ms(w->failures, AGAIN_LEAST_MS,
                                                  AGAIN_MOST_MS, pk_random());
    } else if (!w->dropped) {
        w->failures = 0;
        gone = weigh(w, &k);
    }
    pthread_mutex_unlock(&c->mutex);
    pk_consul_key_free(&k);
    if (gone) {
        pk_consul_ended(c, &c->look, w, pk_clock_ms() + NOTE_MS);
    }
}

/* ---- all of them ---- */

static void free_dropped(struct pk_consul *c)
{
    for (struct pk_consul_watch **at = &c->watches; *at != NULL;) {
        struct pk_consul_watch *w = *at;
        if (w->dropped) {
            *at = w->next;
            /* Closing a connection wants the mutex. */
            pthread_mutex_unlock(&c->mutex);
            free_watch(c, w);
            pthread_mutex_lock(&c->mutex);
            at = &c->watches;
        } else {
            at = &w->next;
        }
    }
}

/* Begins what has to be begun, those that wait first. Mutex held; when to look again. */
static uint64_t begin_some(struct pk_consul *c)
{
    uint64_t now = pk_clock_ms();
    uint64_t at = UINT64_MAX;
    unsigned lines = 0;
    for (const struct pk_consul_watch *w = c->watches; w != NULL; w = w->next) {
        lines += w->running;
        at = w->stir_ms != 0 ? earlier(at, w->stir_ms) : at;
    }
    for (int hold = 0; hold <= 1; hold++) {
        for (struct pk_consul_watch *w = c->watches; w != NULL; w = w->next) {
            bool wanted = !w->running && !w->parked && w->hold == (hold == 1);
            if (wanted && w->due_ms > now) {
                at = earlier(at, w->due_ms);
            } else if (wanted && lines < LINES_MAX) {
                begin(c, w);
                lines += w->running;
            }
        }
    }
    return at;
}

static void stir_some(struct pk_consul *c)
{
    uint64_t now = pk_clock_ms();
    pthread_mutex_lock(&c->mutex);
    for (struct pk_consul_watch *w = c->watches; w != NULL; w = w->next) {
        if (w->stir_ms != 0 && w->stir_ms <= now) {
            w->stir_ms = 0;
            pk_bridge_stir(c->bridge, w->lease, w->request);
        }
    }
    pthread_mutex_unlock(&c->mutex);
}

/* Lets libcurl do what it can now. */
static void drive(struct pk_consul *c)
{
    struct epoll_event events[EVENTS];
    int running = 0;
    int n = epoll_wait(c->epoll_fd, events, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        int what = (events[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                   (events[i].events & ~(uint32_t)EPOLLOUT ? CURL_CSELECT_IN : 0);
        (void)curl_multi_socket_action(c->multi, events[i].data.fd, what, &running);
    }
    if (c->multi_at_ms <= pk_clock_ms()) {
        c->multi_at_ms = UINT64_MAX;
        (void)curl_multi_socket_action(c->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    CURLMsg *m;
    int left;
    while ((m = curl_multi_info_read(c->multi, &left)) != NULL) {
        struct pk_consul_watch *w = NULL;
        CURLcode code = m->data.result;
        (void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&w);
        end(c, w, code);
    }
}

bool pk_consul_await(void *own, uint64_t until_ms)
{
    struct pk_consul *c = own;
    pthread_mutex_lock(&c->mutex);
    free_dropped(c);
    uint64_t at = begin_some(c);
    pthread_mutex_unlock(&c->mutex);
    at = earlier(earlier(at, c->multi_at_ms), until_ms);
    (void)pk_bridge_sleep(c->bridge, c->epoll_fd, at);
    drive(c);
    stir_some(c);
    return false;
}
