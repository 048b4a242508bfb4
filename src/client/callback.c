/* SPDX-License-Identifier: MIT */
/*
 * The callbacks of picket_on_renewal(). They run on the thread that renewed, one at a
 * time for each client, and with no mutex of ours: a callback may call the API. `called`
 * of the client is the lock whose callback runs now; a second thread that renews
 * meanwhile only marks what is due, and leaves it to the first.
 */
#include "client/client.h"
#include "client/error.h"

/* The clients whose callbacks this thread is in, the innermost first. */
struct frame {
    const struct picket *client;
    const struct frame *outer;
};

static _Thread_local const struct frame *innermost;

bool pk_callbacks_inside(const struct picket *p)
{
    const struct frame *f = innermost;
    while (f != NULL && f->client != p) {
        f = f->outer;
    }
    return f != NULL;
}

enum picket_status pk_callbacks_refuse(const struct picket *p, const char *call,
                                       const char *instead)
{
    return pk_callbacks_inside(p)
               ? pk_fail(PICKET_DENIED,
                         "%s in a renewal callback would wait for the callback itself: "
                         "%s",
                         call, instead)
               : PICKET_OK;
}

void pk_callbacks_due(struct picket *p)
{
    /* Else two callbacks that extend the lease would call each other for ever. */
    bool tell = !pk_callbacks_inside(p);
    for (struct picket_lock *l = p->locks; l != NULL && tell; l = l->next) {
        l->due = l->on_renewal != NULL;
    }
}

static struct picket_lock *next_due(const struct picket *p)
{
    struct picket_lock *l = p->locks;
    while (l != NULL && !(l->due && l->phase == PK_PHASE_HELD)) {
        l = l->next;
    }
    return l;
}

/* Mutex held, but not while the callback runs. */
static void call(struct picket *p, struct picket_lock *l)
{
    void (*callback)(uint64_t, void *) = l->on_renewal;
    void *ctx = l->on_renewal_ctx;
    uint64_t safe_until_ms = pk_lock_safe_until(l);
    struct frame frame = {.client = p, .outer = innermost};
    l->due = false;
    p->called = l;
    pthread_mutex_unlock(&p->mutex);
    innermost = &frame;
    callback(safe_until_ms, ctx);
    innermost = frame.outer;
    pthread_mutex_lock(&p->mutex);
    p->called = NULL;
    pthread_cond_broadcast(&p->changed);
    if (l->handle == PK_HANDLE_CLOSED) {
        pthread_mutex_unlock(&p->mutex);
        pk_lock_discard(l);
        pthread_mutex_lock(&p->mutex);
    }
}

void pk_callbacks_run(struct picket *p)
{
    struct picket_lock *l;
    pthread_mutex_lock(&p->mutex);
    while (p->called == NULL && (l = next_due(p)) != NULL) {
        call(p, l);
    }
    pthread_mutex_unlock(&p->mutex);
}

void pk_callbacks_set(struct picket_lock *l, void (*cb)(uint64_t, void *), void *ctx)
{
    struct picket *p = l->client;
    pthread_mutex_lock(&p->mutex);
    l->on_renewal = cb;
    l->on_renewal_ctx = ctx;
    l->due = false;
    while (p->called == l && !pk_callbacks_inside(p)) {
        pthread_cond_wait(&p->changed, &p->mutex);
    }
    pthread_mutex_unlock(&p->mutex);
}

void pk_callbacks_end(struct picket *p)
{
    pthread_mutex_lock(&p->mutex);
    while (p->called != NULL && !pk_callbacks_inside(p)) {
        pthread_cond_wait(&p->changed, &p->mutex);
    }
    pthread_mutex_unlock(&p->mutex);
}
