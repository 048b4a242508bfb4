/* SPDX-License-Identifier: MIT */
#include "server/dash.h"

#include "core/door.h"
#include "server/dash_inside.h"

/* ---- time ---- */

uint64_t pk_dash_age(struct pk_server *s)
{
    if (pk_turn_serving(s->turn)) {
        return 0;
    }
    bool others = s->leader_id != 0 && s->leader_id != s->self.id;
    return others ? pk_uvio_silence_ms(s->uvio, s->leader_id) : UINT64_MAX;
}

uint64_t pk_dash_clock(const struct pk_dash *d, bool *ticking)
{
    struct pk_server *s = d->server;
    uint64_t clock = pk_machine_clock(pk_replica_machine(s->replica));
    if (pk_turn_serving(s->turn)) {
        *ticking = true;
        return pk_turn_clock(s->turn, pk_server_now(s));
    }
    *ticking = pk_dash_age(s) != UINT64_MAX;
    /* Whoever leads moves it on; we learn of it with the next entry. */
    return *ticking ? clock + (uv_now(&s->loop) - d->stepped_ms) : clock;
}

/* ---- what happens ---- */

void pk_dash_step(struct pk_dash *d, const struct pk_command *c,
                  const struct pk_effects *e)
{
    d->stepped_ms = uv_now(&d->server->loop);
    pk_past_step(d->past, pk_replica_machine(d->server->replica), c, e);
}

void pk_dash_gap(struct pk_dash *d)
{
    d->stepped_ms = uv_now(&d->server->loop);
    d->scanned_index = 0;
    pk_past_forget(d->past);
}

void pk_dash_sample(struct pk_dash *d)
{
    uint64_t now = uv_now(&d->server->loop);
    const struct pk_dash_sample *last =
        &d->samples[(d->n_samples + PK_DASH_SAMPLES - 1) % PK_DASH_SAMPLES];
    if (d->n_samples > 0 && now - last->at_ms < 1000) {
        return;
    }
    struct pk_metrics_sums sums = pk_metrics_sums(d->server->metrics);
    d->samples[d->n_samples++ % PK_DASH_SAMPLES] = (struct pk_dash_sample){
        .at_ms = now,
        .grants = sums.grants,
        .ends = sums.ends,
        .lost = sums.lost,
        .rejected = sums.rejected,
    };
}

/* ---- walking over all locks ---- */

static bool offer(void *ctx, const struct pk_look_lock *l)
{
    struct pk_dash *d = ctx;
    for (struct pk_viewer *v = d->first; v != NULL; v = v->next) {
        if (v->scanned && pk_query_fits(&v->query, l, d->slice_ms)) {
            pk_best_offer(&v->best, l);
        }
    }
    d->cursor_len = (uint8_t)l->name.len;
    memcpy(d->cursor, l->name.data, l->name.len);
    return ++d->slice < PK_DASH_SLICE;
}

/* Who needs new rows takes part: when entries were run, or it has none yet, or time alone
 * changes what fits. */
static void begin_walk(struct pk_dash *d)
{
    uint64_t index = pk_replica_standing(d->server->replica).applied_index;
    bool changed = index != d->scanned_index;
    d->scanned_index = index;
    d->scanning = false;
    d->cursor_len = 0;
    for (struct pk_viewer *v = d->first; v != NULL; v = v->next) {
        v->scanned = changed || !v->greeted || v->query.show == PK_SHOW_EXPIRING;
        if (v->scanned) {
            pk_best_begin(&v->best, v->query.sort);
            v->due = false; /* those that it has not taken in time are old now */
            d->scanning = true;
        }
    }
}

static void walk_on(struct pk_dash *d)
{
    bool ticking;
    d->slice = 0;
    d->slice_ms = pk_dash_clock(d, &ticking);
    pk_look_locks(pk_replica_machine(d->server->replica),
                  pk_bytes(d->cursor, d->cursor_len), offer, d);
    d->scanning = d->slice == PK_DASH_SLICE;
    for (struct pk_viewer *v = d->first; !d->scanning && v != NULL; v = v->next) {
        if (v->scanned) {
            pk_best_finish(&v->best);
            v->matched = v->best.offered;
            v->scanned = false;
            v->due = true;
        }
    }
}

/* ---- telling ---- */

static void tell(struct pk_dash *d, struct pk_viewer *v)
{
    /* The first message may wait behind the answer's own head. */
    bool ready = v->greeted ? pk_http_idle(v->stream) : v->due;
    if (!ready || !pk_dash_write(d, v)) {
        return;
    }
    v->greeted = true;
    v->told_ms = uv_now(&d->server->loop);
    (void)pk_http_send(v->stream, pk_bytes(d->message.data, d->message.len));
}

static void on_time(uv_timer_t *timer)
{
    struct pk_dash *d = timer->data;
    uint64_t now = uv_now(&d->server->loop);
    if (!d->scanning) {
        d->began_ms = now;
        begin_walk(d);
    }
    if (d->scanning) {
        walk_on(d);
    }
    bool waits = false; /* somebody has no rows yet */
    for (struct pk_viewer *v = d->first; v != NULL; v = v->next) {
        /* Of a long walk only the end is news, but nobody is left in doubt meanwhile. */
        if (!d->scanning || now - v->told_ms >= PK_DASH_BEAT_MS) {
            tell(d, v);
        }
        waits = waits || !v->greeted;
    }
    if (d->scanning) {
        (void)uv_timer_start(timer, on_time, waits ? 1 : PK_DASH_PAUSE_MS, 0);
        return;
    }
    uint64_t took = now - d->began_ms;
    (void)uv_timer_start(timer, on_time,
                         took < PK_DASH_EVERY_MS ? PK_DASH_EVERY_MS - took : 1, 0);
}

/* ---- viewers ---- */

static void on_gone(void *owner)
{
    struct pk_viewer *v = owner;
    struct pk_dash *d = v->dash;
    *v->back = v->next;
    if (v->next != NULL) {
        v->next->back = v->back;
    }
    pk_door_resize(v, 0);
    if (--d->viewers == 0) {
        d->scanning = false;
        (void)uv_timer_stop(&d->timer);
    }
}

void pk_dash_open(struct pk_dash *d, struct pk_bytes query, struct pk_http_answer *out)
{
    static const char full[] = "too many dashboards are open on this node\n";
    static const char hello[] = "retry: 1000\n\n";
    if (out->stream == NULL || d->viewers >= PK_DASH_VIEWERS_MAX) {
        out->status = 503;
        pk_resp_raw(&out->body, full, sizeof full - 1);
        return;
    }
    struct pk_viewer *v = pk_door_resize(NULL, sizeof *v);
    memset(v, 0, sizeof *v);
    v->dash = d;
    v->stream = out->stream;
    pk_query_read(&v->query, query);
    v->next = d->first;
    v->back = &d->first;
    if (v->next != NULL) {
        v->next->back = &v->next;
    }
    d->first = v;
    d->viewers++;
    out->status = 200;
    out->type = "text/event-stream";
    out->gone = on_gone;
    out->owner = v;
    pk_resp_raw(&out->body, hello, sizeof hello - 1);
    if (!d->scanning) {
        (void)uv_timer_start(&d->timer, on_time, 0, 0);
    }
}

/* ---- life ---- */

struct pk_dash *pk_dash_new(struct pk_server *s)
{
    struct pk_dash *d = pk_door_resize(NULL, sizeof *d);
    memset(d, 0, sizeof *d);
    d->server = s;
    d->past = pk_past_new();
    PK_ASSERT(uv_timer_init(&s->loop, &d->timer) == 0);
    d->timer.data = d;
    return d;
}

static void on_timer_closed(uv_handle_t *handle)
{
    (void)handle;
}

void pk_dash_close(struct pk_dash *d)
{
    uv_close((uv_handle_t *)&d->timer, on_timer_closed);
}

void pk_dash_free(struct pk_dash *d)
{
    if (d == NULL) {
        return;
    }
    PK_ASSERT(d->first == NULL);
    pk_past_free(d->past);
    pk_resp_free(&d->part);
    pk_resp_free(&d->message);
    pk_door_resize(d, 0);
}
