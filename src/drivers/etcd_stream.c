/* SPDX-License-Identifier: MIT */
#include "drivers/etcd_stream.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/error.h"
#include "host/clock.h"
#include "host/fd.h"

enum {
    ASK_AFTER_MS = 2000,  /* of silence: "are you there?" */
    DEAD_AFTER_MS = 5000, /* of silence: no */
};

static int watch_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
    struct pk_etcd_stream *s = arg;
    (void)easy;
    struct epoll_event e = {.data.fd = fd};
    e.events = (what == CURL_POLL_IN || what == CURL_POLL_INOUT ? EPOLLIN : 0U) |
               (what == CURL_POLL_OUT || what == CURL_POLL_INOUT ? EPOLLOUT : 0U);
    if (what == CURL_POLL_REMOVE) {
        (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    } else if (epoll_ctl(s->epoll_fd, known != NULL ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd,
                         &e) != 0) {
        (void)epoll_ctl(s->epoll_fd, errno == EEXIST ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd,
                        &e);
    }
    curl_multi_assign(s->multi, fd, what == CURL_POLL_REMOVE ? NULL : s);
    return 0;
}

static int set_timer(CURLM *multi, long timeout_ms, void *arg)
{
    struct pk_etcd_stream *s = arg;
    (void)multi;
    s->timer_ms = timeout_ms < 0 ? UINT64_MAX : pk_clock_ms() + (uint64_t)timeout_ms;
    return 0;
}

enum picket_status pk_etcd_stream_init(struct pk_etcd_stream *s)
{
    *s = (struct pk_etcd_stream){.timer_ms = UINT64_MAX};
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->nudge_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->timer_fd = pk_timer_fd(0);
    enum picket_status status = pk_etcd_line_init(&s->line);
    s->multi = curl_multi_init();
    struct epoll_event nudge = {.events = EPOLLIN, .data.fd = s->nudge_fd};
    struct epoll_event timer = {.events = EPOLLIN, .data.fd = s->timer_fd};
    if (status != PICKET_OK || s->multi == NULL || s->epoll_fd < 0 ||
        epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->nudge_fd, &nudge) != 0 ||
        epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->timer_fd, &timer) != 0) {
        pk_etcd_stream_free(s);
        return pk_fail(PICKET_LIMIT, "no descriptors left for a connection");
    }
    s->line.open_end = true;
    curl_easy_setopt(s->line.easy, CURLOPT_CONNECTTIMEOUT_MS, 3000L);
    curl_multi_setopt(s->multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
    curl_multi_setopt(s->multi, CURLMOPT_SOCKETDATA, s);
    curl_multi_setopt(s->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    curl_multi_setopt(s->multi, CURLMOPT_TIMERDATA, s);
    return PICKET_OK;
}

void pk_etcd_stream_free(struct pk_etcd_stream *s)
{
    pk_etcd_stream_hang_up(s);
    if (s->multi != NULL) {
        curl_multi_cleanup(s->multi);
    }
    pk_etcd_line_free(&s->line);
    pk_fd_close(&s->epoll_fd);
    pk_fd_close(&s->nudge_fd);
    pk_fd_close(&s->timer_fd);
}

void pk_etcd_stream_forked(struct pk_etcd_stream *s)
{
    pk_etcd_line_forked(&s->line);
    pk_fd_close(&s->epoll_fd);
    pk_fd_close(&s->nudge_fd);
    pk_fd_close(&s->timer_fd);
}

void pk_etcd_stream_dial(struct pk_etcd_stream *s, const struct pk_etcd_caller *c,
                         const char *method)
{
    pk_etcd_stream_hang_up(s);
    pk_etcd_line_address(&s->line, &c->site->places.list[c->at], c->token, method);
    pk_etcd_line_warm(&s->line, false);
    curl_easy_setopt(s->line.easy, CURLOPT_HTTPHEADER, s->line.headers);
    curl_easy_setopt(s->line.easy, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(s->line.easy, CURLOPT_FORBID_REUSE, 1L);
    s->heard_ms = s->asked_ms = pk_clock_ms();
    s->running = curl_multi_add_handle(s->multi, s->line.easy) == CURLM_OK;
}

void pk_etcd_stream_hang_up(struct pk_etcd_stream *s)
{
    if (s->running) {
        curl_multi_remove_handle(s->multi, s->line.easy);
        s->running = false;
    }
}

void pk_etcd_stream_send(struct pk_etcd_stream *s, const struct pk_pb_out *message)
{
    struct pk_etcd_line *l = &s->line;
    if (l->sent == l->out.len) {
        l->out.len = l->sent = 0;
    }
    pk_etcd_line_put(l, message);
    if (s->running && l->paused) {
        l->paused = false;
        curl_easy_pause(l->easy, CURLPAUSE_CONT);
    }
}

/* Forgets the messages that were handed out. */
static void compact(struct pk_etcd_line *l)
{
    if (l->used > 0) {
        memmove(l->in, l->in + l->used, l->in_len - l->used);
        l->in_len -= l->used;
        l->used = 0;
    }
}

bool pk_etcd_stream_pump(struct pk_etcd_stream *s)
{
    enum { EVENTS = 8 };
    struct epoll_event ready[EVENTS];
    int running = 0;
    uint64_t nudges;
    compact(&s->line);
    int n = epoll_wait(s->epoll_fd, ready, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        if (ready[i].data.fd == s->nudge_fd) {
            (void)!read(s->nudge_fd, &nudges, sizeof nudges);
            continue;
        }
        if (ready[i].data.fd == s->timer_fd) {
            pk_timer_set(s->timer_fd, 0);
            continue;
        }
        int what =
            ((ready[i].events & EPOLLIN) != 0 ? CURL_CSELECT_IN : 0) |
            ((ready[i].events & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
            ((ready[i].events & (EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0);
        curl_multi_socket_action(s->multi, ready[i].data.fd, what, &running);
    }
    if (s->timer_ms <= pk_clock_ms()) {
        s->timer_ms = UINT64_MAX;
        curl_multi_socket_action(s->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    int queued;
    CURLMsg *m;
    while ((m = curl_multi_info_read(s->multi, &queued)) != NULL) {
        if (m->msg == CURLMSG_DONE) {
            pk_etcd_line_trouble(&s->line, m->data.result);
            pk_etcd_stream_hang_up(s);
        }
    }
    return s->running;
}

bool pk_etcd_stream_next(struct pk_etcd_stream *s, struct pk_bytes *out)
{
    bool got = pk_etcd_line_take(&s->line, out);
    s->heard_ms = got ? pk_clock_ms() : s->heard_ms;
    return got;
}

void pk_etcd_stream_nudge(struct pk_etcd_stream *s)
{
    pk_fd_poke(s->nudge_fd);
}

bool pk_etcd_stream_alive(struct pk_etcd_stream *s)
{
    struct pk_pb_out message = {0};
    uint64_t now = pk_clock_ms();
    if (now >= s->heard_ms + ASK_AFTER_MS && now >= s->asked_ms + ASK_AFTER_MS) {
        s->asked_ms = now;
        pk_etcd_put_progress(&message);
        pk_etcd_stream_send(s, &message);
        pk_pb_free(&message);
    }
    return now < s->heard_ms + DEAD_AFTER_MS;
}

uint64_t pk_etcd_stream_due(const struct pk_etcd_stream *s)
{
    uint64_t last = s->asked_ms > s->heard_ms ? s->asked_ms : s->heard_ms;
    uint64_t ask = last + ASK_AFTER_MS;
    uint64_t dead = s->heard_ms + DEAD_AFTER_MS;
    uint64_t due = ask < dead ? ask : dead;
    return s->timer_ms < due ? s->timer_ms : due;
}
