/* SPDX-License-Identifier: MIT */
#include "gate/stand.h"

#include <stddef.h>

#include "core/door.h"
#include "host/clock.h"
#include "server/log.h"

enum { RETRY_MS = 500 };

static void begin_waiting(struct pk_stand *s);

/* ---- watching a descriptor of the lock ---- */

static void on_poll_closed(uv_handle_t *handle)
{
    pk_door_resize(handle, 0);
}

/* Before the lock is closed: its descriptors go with it. */
static void unwatch(struct pk_stand *s)
{
    if (s->poll != NULL) {
        uv_close((uv_handle_t *)s->poll, on_poll_closed);
        s->poll = NULL;
    }
}

/* False, and the lock is taken anew later: there is no descriptor left to watch. */
static bool watch(struct pk_stand *s, int fd, uv_poll_cb cb)
{
    if (fd < 0) {
        pk_log(PK_LOG_WARN, "waiting", "lock", s->name, "status",
               picket_status_name(PICKET_LIMIT), NULL);
        s->retry_ms = pk_clock_ms() + RETRY_MS;
        return false;
    }
    s->poll = pk_door_resize(NULL, sizeof *s->poll);
    PK_ASSERT(uv_poll_init(s->loop, s->poll, fd) == 0);
    s->poll->data = s;
    PK_ASSERT(uv_poll_start(s->poll, UV_READABLE, cb) == 0);
    return true;
}

/* ---- gains and losses ---- */

static void lose(struct pk_stand *s)
{
    pk_log(PK_LOG_WARN, "lost", "lock", s->name, "why", picket_loss_reason(s->lock),
           NULL);
    s->held = false;
    unwatch(s);
    s->changed(s->ctx, false);
    begin_waiting(s);
}

static void on_loss(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    lose(poll->data);
}

static void gain(struct pk_stand *s)
{
    if (!watch(s, picket_loss_fd(s->lock), on_loss)) {
        return; /* without it a loss would go unnoticed */
    }
    s->held = true;
    pk_log(PK_LOG_INFO, "standing", "lock", s->name, "token",
           pk_log_u64(picket_token(s->lock)), NULL);
    s->changed(s->ctx, true);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct pk_stand *s = poll->data;
    (void)status;
    (void)events;
    unwatch(s);
    if (picket_wait(s->lock, 0) == PICKET_OK) {
        gain(s);
    } else {
        begin_waiting(s);
    }
}

/* Looks at a lock that was enqueued. */
static void follow(struct pk_stand *s)
{
    if (picket_state(s->lock) != PICKET_WAITING) {
        gain(s);
    } else {
        (void)watch(s, picket_ready_fd(s->lock), on_ready);
    }
}

/* ---- getting in line, on the thread pool ---- */

static void run_waiting(uv_work_t *work)
{
    struct pk_stand *s = work->data;
    picket_lock_close(s->lock);
    s->lock = NULL;
    s->status = picket_enqueue(
        s->store, &(struct picket_want){.name = s->name}, 1,
        &(struct picket_acquire_options){.wait_ms = PICKET_FOREVER}, &s->lock);
}

static void on_waiting(uv_work_t *work, int status)
{
    struct pk_stand *s = work->data;
    (void)status;
    s->working = false;
    if (s->closing) {
        return;
    }
    if (s->status == PICKET_OK) {
        follow(s);
    } else {
        pk_log(PK_LOG_WARN, "waiting", "lock", s->name, "status",
               picket_status_name(s->status), NULL);
        s->retry_ms = pk_clock_ms() + RETRY_MS;
    }
}

static void begin_waiting(struct pk_stand *s)
{
    s->working = true;
    s->retry_ms = 0;
    s->work.data = s;
    PK_ASSERT(uv_queue_work(s->loop, &s->work, run_waiting, on_waiting) == 0);
}

/* ---- the whole ---- */

enum picket_status pk_stand_start(struct pk_stand *s, bool wait)
{
    if (s->shared) {
        return PICKET_OK;
    }
    struct picket_want want = {.name = s->name};
    struct picket_acquire_options o = {.wait_ms = wait ? PICKET_FOREVER : 0};
    enum picket_status status = picket_enqueue(s->store, &want, 1, &o, &s->lock);
    if (status == PICKET_OK) {
        follow(s);
        status = s->poll != NULL ? PICKET_OK : PICKET_LIMIT;
    }
    return status;
}

bool pk_stand_stands(struct pk_stand *s)
{
    return s->shared || (s->held && picket_checkpoint(s->lock, 0) == PICKET_OK);
}

bool pk_stand_held(const struct pk_stand *s)
{
    return s->shared || s->held;
}

void pk_stand_tick(struct pk_stand *s, uint64_t now_ms)
{
    if (s->retry_ms != 0 && now_ms >= s->retry_ms && !s->working && !s->closing) {
        begin_waiting(s);
    }
}

void pk_stand_close(struct pk_stand *s)
{
    s->closing = true;
    s->held = false;
    unwatch(s);
    if (!s->working) {
        picket_lock_close(s->lock);
        s->lock = NULL;
    }
}

bool pk_stand_busy(const struct pk_stand *s)
{
    return s->working;
}
