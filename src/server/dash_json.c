/* SPDX-License-Identifier: MIT */
/* The words of the dashboard's events. Each function writes the value of one key. */
#include "core/door.h"
#include "core/wire.h"
#include "server/dash_inside.h"

enum {
    FIRST_WAITERS = 3, /* named in a row */
    HOLDS_MAX = 50, /* of one lock, when it is looked at alone; the same of its queue */
    LABEL_BYTES = 512,
    BRIEF_BYTES = 160, /* of a label of which only the first words are shown */
    VALUE_BYTES = 80,
    SHOWN_BYTES = 2000,     /* of an election's value, in full view */
    SILENCE_STEP_MS = 1000, /* shorter silences between nodes are none */
};

struct writing {
    struct pk_jout j;
    struct pk_dash *dash;
    struct pk_machine *machine;
    uint64_t now_ms; /* cluster time */
};

static uint64_t since(const struct writing *w, uint64_t then_ms)
{
    return w->now_ms > then_ms ? w->now_ms - then_ms : 0;
}

static uint64_t until(const struct writing *w, uint64_t then_ms)
{
    return then_ms > w->now_ms ? then_ms - w->now_ms : 0;
}

/* ---- the cluster ---- */

/* Null when this node can't know: those who follow don't hear from each other. */
static void put_silence(struct writing *w, const struct pk_member *m, bool leading)
{
    struct pk_server *s = w->dash->server;
    bool self = m->id == s->self.id;
    pk_jout_key(&w->j, "silent_ms");
    if (!self && !leading && m->id != s->leader_id) {
        pk_jout_null(&w->j);
        return;
    }
    uint64_t ms = self ? 0 : pk_uvio_silence_ms(s->uvio, m->id);
    if (ms == UINT64_MAX) {
        pk_jout_text(&w->j, pk_text("away"), SHOWN_BYTES);
    } else {
        pk_jout_number(&w->j, ms / SILENCE_STEP_MS * SILENCE_STEP_MS);
    }
}

static void put_lag(struct writing *w, const struct pk_standing *st, bool self,
                    uint64_t match)
{
    pk_jout_key(&w->j, "lag");
    if (st->leader) {
        pk_jout_number(&w->j, st->last_index > match ? st->last_index - match : 0);
    } else if (self) {
        pk_jout_number(&w->j, st->commit_index - st->applied_index);
    } else {
        pk_jout_null(&w->j);
    }
}

static void put_member(struct writing *w, const struct pk_member *m,
                       const struct pk_standing *st, uint64_t match)
{
    static const char *const roles[] = {"voter", "standby", "spare"};
    struct pk_server *s = w->dash->server;
    const struct pk_peer *p = pk_peers_find(&s->peers, m->id);
    bool self = m->id == s->self.id;
    char name[PK_NODE_NAME_MAX];
    (void)pk_member_name(m, name, sizeof name);
    pk_jout_begin(&w->j, '{');
    pk_jout_put_text(&w->j, "name", pk_text(name), SHOWN_BYTES);
    pk_jout_put_text(&w->j, "role", pk_text(roles[m->role]), SHOWN_BYTES);
    pk_jout_put_bool(&w->j, "leader", m->id == s->leader_id);
    pk_jout_put_bool(&w->j, "self", self);
    pk_jout_put_text(&w->j, "http",
                     pk_text(self        ? s->http_address
                             : p == NULL ? ""
                                         : p->http),
                     SHOWN_BYTES);
    put_lag(w, st, self, match);
    put_silence(w, m, st->leader);
    pk_jout_end(&w->j, '}');
}

static void write_cluster(struct writing *w)
{
    struct pk_server *s = w->dash->server;
    struct pk_member members[PK_MEMBERS_MAX];
    uint64_t match[PK_MEMBERS_MAX];
    size_t n = pk_replica_members(s->replica, members, match);
    struct pk_standing st = pk_replica_standing(s->replica);
    pk_jout_begin(&w->j, '{');
    pk_jout_put_text(&w->j, "node", pk_text(s->self.name), SHOWN_BYTES);
    pk_jout_put_text(&w->j, "version", pk_text(PICKET_VERSION), SHOWN_BYTES);
    pk_jout_put_text(&w->j, "standing",
                     pk_text(st.leader      ? "leader"
                             : st.candidate ? "candidate"
                                            : "follower"),
                     SHOWN_BYTES);
    pk_jout_put_bool(&w->j, "serving", pk_turn_serving(s->turn));
    pk_jout_put_number(&w->j, "term", st.term);
    pk_jout_put_number(&w->j, "commit", st.commit_index);
    pk_jout_key(&w->j, "members");
    pk_jout_begin(&w->j, '[');
    for (size_t i = 0; i < n; i++) {
        put_member(w, &members[i], &st, match[i]);
    }
    pk_jout_end(&w->j, ']');
    pk_jout_end(&w->j, '}');
}

/* ---- numbers ---- */

static void write_totals(struct writing *w)
{
    struct pk_server *s = w->dash->server;
    struct pk_stats stats = pk_machine_stats(w->machine);
    pk_jout_begin(&w->j, '{');
    pk_jout_put_number(&w->j, "locks", stats.locks);
    pk_jout_put_number(&w->j, "holds", stats.holds);
    pk_jout_put_number(&w->j, "waits", stats.waits);
    pk_jout_put_number(&w->j, "leases", stats.leases);
    pk_jout_put_number(&w->j, "fences", stats.fences);
    pk_jout_put_number(&w->j, "token", pk_machine_last_token(w->machine));
    pk_jout_put_number(&w->j, "connections", s->conn_count);
    pk_jout_end(&w->j, '}');
}

/* What happened from one sample to the next, by the second. */
static void put_rate(struct writing *w, uint64_t before, uint64_t after, uint64_t ms)
{
    pk_jout_number(&w->j, (after - before) * 1000 / (ms == 0 ? 1 : ms));
}

static void write_rates(struct writing *w)
{
    const struct pk_dash *d = w->dash;
    uint64_t n = d->n_samples < PK_DASH_SAMPLES ? d->n_samples : PK_DASH_SAMPLES;
    pk_jout_begin(&w->j, '[');
    for (uint64_t i = d->n_samples - n + 1; n > 0 && i < d->n_samples; i++) {
        const struct pk_dash_sample *a = &d->samples[(i - 1) % PK_DASH_SAMPLES];
        const struct pk_dash_sample *b = &d->samples[i % PK_DASH_SAMPLES];
        uint64_t ms = b->at_ms - a->at_ms;
        pk_jout_begin(&w->j, '[');
        put_rate(w, a->grants, b->grants, ms);
        put_rate(w, a->ends, b->ends, ms);
        pk_jout_number(&w->j, b->lost - a->lost);
        pk_jout_number(&w->j, b->rejected - a->rejected);
        pk_jout_end(&w->j, ']');
    }
    pk_jout_end(&w->j, ']');
}

static void put_numbers(struct writing *w, const char *key, const uint64_t *v, uint32_t n,
                        uint64_t per_one)
{
    pk_jout_key(&w->j, key);
    pk_jout_begin(&w->j, '[');
    for (uint32_t i = 0; i < n; i++) {
        pk_jout_number(&w->j, v[i] / per_one);
    }
    pk_jout_end(&w->j, ']');
}

static void write_times(struct writing *w)
{
    struct pk_metrics_sums sums = pk_metrics_sums(w->dash->server->metrics);
    pk_jout_begin(&w->j, '{');
    put_numbers(w, "bounds_ms", sums.bounds_us, sums.buckets - 1, 1000);
    put_numbers(w, "wait", sums.wait, sums.buckets, 1);
    put_numbers(w, "hold", sums.hold, sums.buckets, 1);
    pk_jout_put_number(&w->j, "lost", sums.lost);
    pk_jout_put_number(&w->j, "rejected", sums.rejected);
    pk_jout_put_number(&w->j, "shadowed", sums.shadowed);
    pk_jout_end(&w->j, '}');
}

/* ---- the past ---- */

static void write_losses(struct writing *w)
{
    const struct pk_past_loss *l;
    pk_jout_begin(&w->j, '[');
    for (uint64_t i = 0; (l = pk_past_loss(w->dash->past, i)) != NULL; i++) {
        pk_jout_begin(&w->j, '{');
        pk_jout_put_text(&w->j, "name", pk_bytes(l->name, l->name_len), PK_NAME_MAX);
        pk_jout_put_number(&w->j, "token", l->token);
        pk_jout_put_text(&w->j, "end", pk_text(pk_end_name(l->end)), SHOWN_BYTES);
        pk_jout_put_number(&w->j, "ago_ms", since(w, l->at_ms));
        pk_jout_put_number(&w->j, "held_ms", l->held_ms);
        pk_jout_put_text(&w->j, "label", pk_past_text(&l->label), LABEL_BYTES);
        pk_jout_put_text(&w->j, "by", pk_past_text(&l->by), LABEL_BYTES);
        pk_jout_put_text(&w->j, "why", pk_past_text(&l->why), LABEL_BYTES);
        pk_jout_end(&w->j, '}');
    }
    pk_jout_end(&w->j, ']');
}

static void write_refusals(struct writing *w)
{
    const struct pk_past_refusal *r;
    pk_jout_begin(&w->j, '[');
    for (uint64_t i = 0; (r = pk_past_refusal(w->dash->past, i)) != NULL; i++) {
        pk_jout_begin(&w->j, '{');
        pk_jout_put_text(&w->j, "name", pk_bytes(r->name, r->name_len), PK_NAME_MAX);
        pk_jout_put_number(&w->j, "token", r->token);
        pk_jout_put_number(&w->j, "highest", r->highest);
        pk_jout_put_text(&w->j, "why", pk_text(pk_status_name(r->why)), SHOWN_BYTES);
        pk_jout_put_bool(&w->j, "shadow", r->shadow);
        pk_jout_put_text(&w->j, "by", pk_past_text(&r->by), LABEL_BYTES);
        pk_jout_put_number(&w->j, "ago_ms", since(w, r->at_ms));
        pk_jout_end(&w->j, '}');
    }
    pk_jout_end(&w->j, ']');
}

/* ---- one lock ---- */

struct claims {
    struct writing *w;
    uint32_t n, most;
};

static bool put_claim(void *ctx, const struct pk_look_claim *c)
{
    struct claims *all = ctx;
    struct writing *w = all->w;
    pk_jout_begin(&w->j, '{');
    pk_jout_put_number(&w->j, "token", c->token);
    pk_jout_put_id(&w->j, "lease", c->lease);
    pk_jout_put_text(&w->j, "mode", pk_text(pk_mode_name(c->mode)), SHOWN_BYTES);
    pk_jout_put_text(&w->j, "label", c->label, LABEL_BYTES);
    pk_jout_put_text(&w->j, "value", c->value, SHOWN_BYTES);
    pk_jout_put_bool(&w->j, "key", c->keyed);
    pk_jout_put_number(&w->j, "parts", c->parts);
    pk_jout_put_number(&w->j, "since_ms", since(w, c->since_ms));
    pk_jout_put_number(&w->j, "left_ms", until(w, c->ends_ms));
    pk_jout_put_number(&w->j, "ttl_ms", c->ttl_ms);
    pk_jout_end(&w->j, '}');
    return ++all->n < all->most;
}

static void put_past_holds(struct writing *w, struct pk_bytes name)
{
    const struct pk_past_hold *h;
    pk_jout_key(&w->j, "past");
    pk_jout_begin(&w->j, '[');
    for (uint32_t i = 0; (h = pk_past_hold(w->dash->past, name, i)) != NULL; i++) {
        pk_jout_begin(&w->j, '{');
        pk_jout_put_number(&w->j, "token", h->token);
        pk_jout_put_text(&w->j, "label", pk_past_text(&h->label), LABEL_BYTES);
        pk_jout_put_number(&w->j, "granted_ago_ms", since(w, h->granted_ms));
        pk_jout_put_number(&w->j, "waited_ms", h->waited_ms);
        pk_jout_put_text(&w->j, "mode", pk_text(pk_mode_name(h->mode)), SHOWN_BYTES);
        if (h->end != PK_END_NONE) {
            pk_jout_put_number(&w->j, "ended_ago_ms", since(w, h->ended_ms));
            pk_jout_put_text(&w->j, "end", pk_text(pk_end_name(h->end)), SHOWN_BYTES);
        }
        pk_jout_end(&w->j, '}');
    }
    pk_jout_end(&w->j, ']');
}

static void write_lock(struct writing *w, struct pk_bytes name)
{
    struct pk_look_lock l = {.name = name};
    struct claims holds = {.w = w, .most = HOLDS_MAX};
    struct claims waits = holds;
    (void)pk_look_lock(w->machine, name, &l);
    pk_jout_begin(&w->j, '{');
    pk_jout_put_text(&w->j, "name", name, PK_NAME_MAX);
    pk_jout_put_number(&w->j, "holders", l.holders);
    pk_jout_put_number(&w->j, "waiters", l.waiters);
    pk_jout_put_number(&w->j, "slots", l.slots);
    pk_jout_put_number(&w->j, "closed_ms", until(w, l.closed_until_ms));
    pk_jout_key(&w->j, "holds");
    pk_jout_begin(&w->j, '[');
    pk_look_holds(w->machine, name, put_claim, &holds);
    pk_jout_end(&w->j, ']');
    pk_jout_key(&w->j, "queue");
    pk_jout_begin(&w->j, '[');
    pk_look_waits(w->machine, name, put_claim, &waits);
    pk_jout_end(&w->j, ']');
    put_past_holds(w, name);
    pk_jout_end(&w->j, '}');
}

/* ---- rows ---- */

static uint64_t digest_text(uint64_t digest, struct pk_bytes b)
{
    digest = pk_digest(digest, &b.len, sizeof b.len);
    return b.len == 0 ? digest : pk_digest(digest, b.data, b.len);
}

struct firsts {
    struct pk_jout *j; /* NULL: only the digest is wanted */
    uint64_t digest;
    uint32_t n;
};

static bool put_first(void *ctx, const struct pk_look_claim *c)
{
    struct firsts *f = ctx;
    f->digest = digest_text(f->digest, c->label);
    if (f->j != NULL) {
        pk_jout_text(f->j, c->label, BRIEF_BYTES);
    }
    return ++f->n < FIRST_WAITERS;
}

/* Of all that a row shows, with moments in place of durations. */
static uint64_t digest_row(const struct pk_machine *m, const struct pk_look_lock *l)
{
    const uint64_t numbers[] = {
        l->holders,  l->waiters, l->slots,           l->token,          l->ttl_ms,
        l->since_ms, l->ends_ms, l->closed_until_ms, (uint64_t)l->mode, l->keyed};
    struct firsts f = {
        .digest = pk_digest(PK_DIGEST_START, numbers, sizeof numbers),
    };
    f.digest = digest_text(digest_text(f.digest, l->label), l->value);
    pk_look_waits(m, l->name, put_first, &f);
    return f.digest;
}

static void put_row(struct writing *w, const struct pk_look_lock *l)
{
    struct firsts f = {.j = &w->j};
    pk_jout_begin(&w->j, '{');
    pk_jout_put_text(&w->j, "name", l->name, PK_NAME_MAX);
    pk_jout_put_number(&w->j, "holders", l->holders);
    pk_jout_put_number(&w->j, "waiters", l->waiters);
    pk_jout_put_number(&w->j, "slots", l->slots);
    pk_jout_put_number(&w->j, "closed_ms", until(w, l->closed_until_ms));
    if (l->holders > 0) {
        pk_jout_put_text(&w->j, "mode", pk_text(pk_mode_name(l->mode)), SHOWN_BYTES);
        pk_jout_put_number(&w->j, "token", l->token);
        pk_jout_put_number(&w->j, "held_ms", since(w, l->since_ms));
        pk_jout_put_number(&w->j, "left_ms", until(w, l->ends_ms));
        pk_jout_put_number(&w->j, "ttl_ms", l->ttl_ms);
        pk_jout_put_text(&w->j, "label", l->label, LABEL_BYTES);
        pk_jout_put_text(&w->j, "value", l->value, VALUE_BYTES);
        pk_jout_put_bool(&w->j, "key", l->keyed);
    }
    pk_jout_key(&w->j, "first");
    pk_jout_begin(&w->j, '[');
    pk_look_waits(w->machine, l->name, put_first, &f);
    pk_jout_end(&w->j, ']');
    pk_jout_end(&w->j, '}');
}

/* The place that the same row had when it was last sent; n_sent: it is another now. */
static uint32_t place_before(const struct pk_viewer *v, struct pk_dash_sent s,
                             uint32_t guess)
{
    for (uint32_t i = 0; i < v->n_sent; i++) {
        uint32_t at = (guess + i) % v->n_sent; /* most stay where they are */
        if (v->sent[at].name == s.name) {
            return v->sent[at].content == s.content ? at : v->n_sent;
        }
    }
    return v->n_sent;
}

/* True when some row is new or elsewhere. */
static bool write_rows(struct writing *w, struct pk_viewer *v)
{
    struct pk_dash_sent now[PK_QUERY_ROWS];
    uint32_t n = 0;
    bool changed = false;
    pk_jout_begin(&w->j, '[');
    for (uint32_t i = 0; i < v->best.n; i++) {
        const struct pk_best_row *r = &v->best.rows[i];
        struct pk_look_lock l;
        if (!pk_look_lock(w->machine, pk_bytes(r->name, r->name_len), &l)) {
            continue; /* it is gone since */
        }
        struct pk_dash_sent s = {digest_text(PK_DIGEST_START, l.name),
                                 digest_row(w->machine, &l)};
        uint32_t before = place_before(v, s, n);
        if (before < v->n_sent) {
            pk_jout_number(&w->j, before);
        } else {
            put_row(w, &l);
        }
        changed = changed || before != n || before == v->n_sent;
        now[n++] = s;
    }
    pk_jout_end(&w->j, ']');
    changed = changed || n != v->n_sent || !v->greeted;
    v->n_sent = n;
    memcpy(v->sent, now, n * sizeof now[0]);
    return changed;
}

/* ---- the message ---- */

/* Adds a part that was written into d->part, if it differs from what `v` has. */
static bool add(struct pk_dash *d, struct pk_viewer *v, enum pk_dash_part part,
                uint64_t digest)
{
    static const char *const keys[] = {
        [PK_DASH_CLUSTER] = ",\"cluster\":", [PK_DASH_TOTALS] = ",\"totals\":",
        [PK_DASH_RATES] = ",\"rates\":",     [PK_DASH_TIMES] = ",\"times\":",
        [PK_DASH_LOSSES] = ",\"losses\":",   [PK_DASH_REFUSALS] = ",\"refusals\":",
        [PK_DASH_LOCK] = ",\"lock\":",
    };
    if (v->greeted && v->was[part] == digest) {
        return false;
    }
    v->was[part] = digest;
    pk_resp_raw(&d->message, keys[part], strlen(keys[part]));
    pk_resp_raw(&d->message, d->part.data, d->part.len);
    return true;
}

static void begin_part(struct writing *w)
{
    w->dash->part.len = 0;
    w->j = (struct pk_jout){.out = &w->dash->part};
}

/* A part that shows no durations is compared as it is written. */
static bool add_plain(struct writing *w, struct pk_viewer *v, enum pk_dash_part part,
                      void (*write)(struct writing *w))
{
    begin_part(w);
    write(w);
    const struct pk_resp_out *p = &w->dash->part;
    return add(w->dash, v, part, pk_digest(PK_DIGEST_START, p->data, p->len));
}

static bool add_parts(struct writing *w, struct pk_viewer *v, uint64_t index)
{
    struct pk_dash *d = w->dash;
    bool news = add_plain(w, v, PK_DASH_CLUSTER, write_cluster);
    news = add_plain(w, v, PK_DASH_TOTALS, write_totals) || news;
    news = add_plain(w, v, PK_DASH_TIMES, write_times) || news;
    begin_part(w);
    write_losses(w);
    news = add(d, v, PK_DASH_LOSSES, pk_past_losses(d->past)) || news;
    begin_part(w);
    write_refusals(w);
    news = add(d, v, PK_DASH_REFUSALS, pk_past_refusals(d->past)) || news;
    if (v->query.lock_len > 0) {
        begin_part(w);
        write_lock(w, pk_bytes(v->query.lock, v->query.lock_len));
        news = add(d, v, PK_DASH_LOCK, index) || news;
    }
    return news;
}

static bool add_rows(struct writing *w, struct pk_viewer *v)
{
    static const char key[] = ",\"rows\":";
    if (!v->due) {
        return false;
    }
    v->due = false;
    begin_part(w);
    if (!write_rows(w, v)) {
        return false;
    }
    pk_resp_raw(&w->dash->message, key, sizeof key - 1);
    pk_resp_raw(&w->dash->message, w->dash->part.data, w->dash->part.len);
    return true;
}

static void put_age(struct pk_jout *j, struct pk_server *s)
{
    uint64_t ms = pk_dash_age(s);
    pk_jout_key(j, "age_ms");
    if (ms == UINT64_MAX) {
        pk_jout_null(j);
    } else {
        pk_jout_number(j, ms);
    }
}

bool pk_dash_write(struct pk_dash *d, struct pk_viewer *v)
{
    struct pk_server *s = d->server;
    uint64_t index = pk_replica_standing(s->replica).applied_index;
    bool ticking;
    struct writing w = {.dash = d, .machine = pk_replica_machine(s->replica)};
    w.now_ms = pk_dash_clock(d, &ticking);
    char digits[PK_RESP_DIGITS_MAX];
    const char *event = v->greeted ? "\nevent: delta\ndata: {"
                                   : "\nevent: snapshot\n"
                                     "data: {";
    d->message.len = 0;
    pk_resp_raw(&d->message, "id: ", 4);
    pk_resp_raw(&d->message, digits, pk_resp_digits(digits, index));
    pk_resp_raw(&d->message, event, strlen(event));
    struct pk_jout head = {.out = &d->message};
    pk_jout_put_number(&head, "clock_ms", w.now_ms);
    pk_jout_put_bool(&head, "ticking", ticking);
    pk_jout_put_number(&head, "index", index);
    put_age(&head, s);
    pk_jout_put_number(&head, "matched", v->matched);
    bool news = add_rows(&w, v);
    news = add_parts(&w, v, index) || news;
    news = news || uv_now(&s->loop) - v->told_ms >= PK_DASH_BEAT_MS;
    if (news) { /* that time goes by is none by itself */
        (void)add_plain(&w, v, PK_DASH_RATES, write_rates);
    }
    pk_resp_raw(&d->message, "}\n\n", 3);
    return news;
}
