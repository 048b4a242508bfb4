/* SPDX-License-Identifier: MIT */
/*
 * A client: the program, and its library below it.
 *
 * The library asks for a lease and for the lock, renews by the real keeper, and knows by
 * its own clock when the lease is over. The program reads the resource when it gets the
 * lock, and writes what it read plus one. Unless it asks its clock (checkpoint), it goes
 * on believing until somebody tells it: that is what most programs do, and the point of
 * fencing.
 */
#include "core/door.h"
#include "sim/inside.h"

static struct pk_sim_client *client_of(struct pk_world *w, uint32_t who)
{
    PK_ASSERT(who < PK_CLIENTS_MAX);
    return &w->clients[who];
}

static bool redlock(const struct pk_world *w)
{
    return w->config.flavour == PK_FLAVOUR_REDLOCK;
}

/* How long to wait for an answer before asking again. */
static uint64_t patience_us(const struct pk_world *w)
{
    return w->config.ttl_us / 6;
}

static bool lease_lost(const struct pk_world *w, uint32_t who)
{
    const struct pk_sim_client *c = &w->clients[who];
    return pk_keeper_trust(&c->keeper, pk_local_ms(w, who)) == PK_TRUST_LOST;
}

static void say(struct pk_world *w, uint32_t who, struct pk_message m)
{
    const struct pk_sim_client *c = client_of(w, who);
    m.from = (uint8_t)who;
    m.lease = m.lease != 0 ? m.lease : c->lease;
    m.echo_ms = pk_local_ms(w, who);
    pk_send(w, m);
}

/* ---- the program ---- */

static void doubt(struct pk_world *w, uint32_t who, enum pk_doubt why)
{
    struct pk_sim_client *c = client_of(w, who);
    if (c->believes) {
        pk_emit(w, (struct pk_record){.kind = PK_REC_DOUBTED,
                                      .who = (uint8_t)who,
                                      .code = (uint8_t)why,
                                      .section = c->section,
                                      .token = c->token});
    }
    c->believes = c->ready = c->reading = c->writing = false;
    c->writes = 0;
    pk_timer_stop(w, who, PK_TIMER_DATA);
}

static void ask_resource(struct pk_world *w, uint32_t who)
{
    const struct pk_sim_client *c = client_of(w, who);
    struct pk_message m = {.word = c->reading ? PK_WORD_READ : PK_WORD_WRITE,
                           .to = PK_WHO_RESOURCE,
                           .section = c->section,
                           .token = c->token,
                           .request = c->last_write,
                           .value = c->writing_value};
    say(w, who, m);
    pk_timer(w, who, PK_TIMER_DATA, w->now_us + patience_us(w) + 2 * w->config.delay_us);
}

/* One write at a time: the next one builds on what this one leaves (P6). */
static void write_next(struct pk_world *w, uint32_t who)
{
    struct pk_sim_client *c = client_of(w, who);
    if (!c->believes || !c->ready || c->writing || c->writes == 0) {
        return;
    }
    if (w->config.checkpoint && lease_lost(w, who)) {
        doubt(w, who, PK_DOUBT_CLOCK);
        return;
    }
    c->writes--;
    c->writing = true;
    c->last_write++;
    c->writing_value = c->value + 1;
    ask_resource(w, who);
}

/* No answer: what became of the write is not known, so it has to look. */
static void read_anew(struct pk_world *w, uint32_t who)
{
    struct pk_sim_client *c = client_of(w, who);
    if (c->reading || c->writing) {
        c->writing = c->ready = false;
        c->reading = true;
        ask_resource(w, who);
    }
}

static void hear_resource(struct pk_world *w, uint32_t who, const struct pk_message *m)
{
    struct pk_sim_client *c = client_of(w, who);
    if (!c->believes || m->section != c->section) {
        return; /* about an earlier time of ours */
    }
    if (m->word == PK_WORD_STALE) {
        doubt(w, who, PK_DOUBT_REFUSED);
    } else if (m->word == PK_WORD_VALUE && c->reading && m->request == c->last_write) {
        c->reading = false;
        c->ready = true;
        c->value = m->value;
        pk_timer_stop(w, who, PK_TIMER_DATA);
    } else if (m->word == PK_WORD_WRITTEN && c->writing && m->request == c->last_write) {
        c->writing = false;
        c->value = c->writing_value;
        pk_timer_stop(w, who, PK_TIMER_DATA);
    }
    write_next(w, who);
}

/* ---- the library: holding ---- */

static void trust(struct pk_world *w, uint32_t who)
{
    const struct pk_sim_client *c = client_of(w, who);
    uint64_t until = pk_true_us(w, who, pk_keeper_safe_until(&c->keeper));
    pk_emit(w, (struct pk_record){.kind = PK_REC_TRUSTED,
                                  .who = (uint8_t)who,
                                  .section = c->section,
                                  .token = c->token,
                                  .arg = until});
}

void pk_sim_client_hold(struct pk_world *w, uint32_t who, uint64_t token,
                        uint32_t section)
{
    struct pk_sim_client *c = client_of(w, who);
    if (w->config.mistakes & PK_MISTAKE_FROM_ARRIVAL) {
        pk_keeper_acked(&c->keeper, pk_local_ms(w, who), w->config.ttl_us / 1000, 0);
        pk_timer(w, who, PK_TIMER_LOST,
                 pk_true_us(w, who, pk_keeper_lost_at(&c->keeper)));
    }
    if (lease_lost(w, who)) {
        return; /* it came too late; the timer says so too */
    }
    pk_timer_stop(w, who, PK_TIMER_ASK);
    c->phase = PK_SIM_HOLDING;
    c->token = token;
    c->section = section;
    trust(w, who);
    c->believes = true;
    c->reading = true;
    pk_emit(w, (struct pk_record){.kind = PK_REC_BELIEVED,
                                  .who = (uint8_t)who,
                                  .section = section,
                                  .token = token});
    ask_resource(w, who);
}

void pk_sim_client_kept(struct pk_world *w, uint32_t who, uint64_t sent_ms)
{
    struct pk_sim_client *c = client_of(w, who);
    bool first = c->keeper.ttl_ms == 0;
    if (!first && lease_lost(w, who)) {
        return; /* lost is final (P5) */
    }
    uint64_t from =
        w->config.mistakes & PK_MISTAKE_FROM_ARRIVAL ? pk_local_ms(w, who) : sent_ms;
    if (!first && from <= c->keeper.sent_ms) {
        return; /* an old answer to an old question */
    }
    pk_keeper_acked(&c->keeper, from, w->config.ttl_us / 1000, 0);
    c->renewing = false;
    pk_timer(w, who, PK_TIMER_RENEW, pk_true_us(w, who, c->keeper.next_ms));
    pk_timer(w, who, PK_TIMER_LOST, pk_true_us(w, who, pk_keeper_lost_at(&c->keeper)));
    if (c->phase == PK_SIM_HOLDING) {
        trust(w, who);
    }
}

/* ---- the library: asking ---- */

static void ask(struct pk_world *w, uint32_t who)
{
    struct pk_sim_client *c = client_of(w, who);
    if (redlock(w)) {
        pk_redlock_acquire(w, who);
        return;
    }
    if (c->lease == 0) {
        bool first = c->opening_ms == 0;
        c->opening_ms = first ? pk_local_ms(w, who) : c->opening_ms;
        say(w, who,
            (struct pk_message){.word = PK_WORD_OPEN,
                                .to = PK_WHO_SERVICE,
                                .request = (uint64_t)(who + 1) << 32 | c->openings});
    } else {
        say(w, who,
            (struct pk_message){
                .word = PK_WORD_ACQUIRE, .to = PK_WHO_SERVICE, .request = c->request});
    }
    pk_timer(w, who, PK_TIMER_ASK, w->now_us + patience_us(w));
}

static void forget_lease(struct pk_world *w, uint32_t who)
{
    struct pk_sim_client *c = client_of(w, who);
    c->lease = 0;
    c->openings++;
    c->opening_ms = 0;
    c->renewing = false;
    c->keeper = (struct pk_keeper){0};
    pk_timer_stop(w, who, PK_TIMER_RENEW);
    pk_timer_stop(w, who, PK_TIMER_LOST);
}

void pk_sim_client_lose(struct pk_world *w, uint32_t who)
{
    struct pk_sim_client *c = client_of(w, who);
    bool wanted = c->phase == PK_SIM_ASKING || c->phase == PK_SIM_QUEUED;
    if (c->phase == PK_SIM_HOLDING) {
        pk_emit(w, (struct pk_record){.kind = PK_REC_LOST,
                                      .who = (uint8_t)who,
                                      .section = c->section,
                                      .token = c->token});
        c->phase = PK_SIM_IDLE;
        if (w->config.checkpoint) {
            doubt(w, who, PK_DOUBT_CLOCK);
        }
    }
    struct pk_keeper last = c->keeper;
    forget_lease(w, who);
    c->keeper = c->believes ? last : c->keeper; /* for whoever looks at its clock */
    if (wanted) {
        c->keeper = (struct pk_keeper){0};
        c->phase = PK_SIM_ASKING;
        c->request++;
        ask(w, who);
    }
}

static void release(struct pk_world *w, uint32_t who)
{
    const struct pk_sim_client *c = client_of(w, who);
    say(w, who,
        (struct pk_message){.word = PK_WORD_RELEASE,
                            .to = PK_WHO_SERVICE,
                            .lease = c->releasing_lease,
                            .request = c->releasing_request,
                            .token = c->releasing_token});
    pk_timer(w, who, PK_TIMER_RELEASE, w->now_us + patience_us(w));
}

static void begin_release(struct pk_world *w, uint32_t who)
{
    struct pk_sim_client *c = client_of(w, who);
    bool held = c->phase == PK_SIM_HOLDING;
    doubt(w, who, PK_DOUBT_RELEASED);
    if (!held) {
        return; /* the library has lost it before */
    }
    c->phase = PK_SIM_IDLE;
    if (redlock(w)) {
        pk_redlock_release(w, who);
        forget_lease(w, who);
        return;
    }
    c->releasing_token = c->token;
    c->releasing_lease = c->lease;
    c->releasing_request = ++c->request;
    release(w, who);
}

static void renew(struct pk_world *w, uint32_t who)
{
    struct pk_sim_client *c = client_of(w, who);
    if (c->renewing) {
        pk_keeper_failed(&c->keeper, pk_local_ms(w, who), pk_draw(w, 7000 + who));
    }
    c->renewing = true;
    if (redlock(w)) {
        pk_redlock_extend(w, who);
    } else {
        say(w, who, (struct pk_message){.word = PK_WORD_RENEW, .to = PK_WHO_SERVICE});
    }
    uint64_t again = pk_true_us(w, who, c->keeper.next_ms);
    uint64_t later = w->now_us + patience_us(w);
    pk_timer(w, who, PK_TIMER_RENEW, again > later ? again : later);
}

static void hear_service(struct pk_world *w, uint32_t who, const struct pk_message *m)
{
    struct pk_sim_client *c = client_of(w, who);
    bool asking = c->phase == PK_SIM_ASKING || c->phase == PK_SIM_QUEUED;
    bool opening = c->lease == 0 && asking &&
                   m->request == ((uint64_t)(who + 1) << 32 | c->openings);
    if (m->word == PK_WORD_GONE && opening) {
        /* It ended before we heard that it had begun; another one, then. */
        forget_lease(w, who);
        ask(w, who);
        return;
    }
    if (m->word == PK_WORD_OPENED) {
        if (opening) {
            /* The service may have counted from the first time we asked (P5). */
            bool retry = (w->config.mistakes & PK_MISTAKE_FROM_RETRY) != 0;
            c->lease = m->lease;
            pk_sim_client_kept(w, who, retry ? m->echo_ms : c->opening_ms);
            ask(w, who);
        }
        return;
    }
    if (m->word == PK_WORD_RELEASED && m->request == c->releasing_request) {
        pk_timer_stop(w, who, PK_TIMER_RELEASE);
        return;
    }
    if (m->lease != c->lease || c->lease == 0) {
        return; /* of a lease that is over */
    }
    if (m->word == PK_WORD_RENEWED) {
        pk_sim_client_kept(w, who, m->echo_ms);
    } else if (m->word == PK_WORD_GONE) {
        pk_sim_client_lose(w, who);
    } else if (m->word == PK_WORD_QUEUED && asking && m->request == c->request) {
        c->phase = PK_SIM_QUEUED;
        pk_timer_stop(w, who, PK_TIMER_ASK);
    } else if (m->word == PK_WORD_GRANTED && asking && m->request == c->request) {
        pk_sim_client_hold(w, who, m->token, m->section);
    }
}

/* ---- what happens to it ---- */

void pk_sim_client_act(struct pk_world *w, uint32_t who, enum pk_op op)
{
    struct pk_sim_client *c = client_of(w, who);
    if (op == PK_OP_ACQUIRE && c->phase == PK_SIM_IDLE) {
        doubt(w, who, PK_DOUBT_ANEW);
        if (c->lease == 0) {
            c->keeper = (struct pk_keeper){0};
        }
        c->phase = PK_SIM_ASKING;
        c->request++;
        ask(w, who);
    } else if (op == PK_OP_WRITE && c->believes) {
        c->writes++;
        write_next(w, who);
    } else if (op == PK_OP_RELEASE && c->believes) {
        begin_release(w, who);
    } else {
        pk_emit(w, (struct pk_record){
                       .kind = PK_REC_IGNORED, .who = (uint8_t)who, .code = (uint8_t)op});
    }
}

void pk_sim_client_hear(struct pk_world *w, uint32_t who, const struct pk_message *m)
{
    if (m->from == PK_WHO_RESOURCE) {
        hear_resource(w, who, m);
    } else if (redlock(w)) {
        pk_redlock_hear(w, who, m);
    } else {
        hear_service(w, who, m);
    }
}

void pk_sim_client_timer(struct pk_world *w, uint32_t who, enum pk_timer_kind kind)
{
    const struct pk_sim_client *c = client_of(w, who);
    switch (kind) {
    case PK_TIMER_RENEW:
        renew(w, who);
        break;
    case PK_TIMER_LOST:
        pk_sim_client_lose(w, who);
        break;
    case PK_TIMER_ASK:
        if (c->phase == PK_SIM_ASKING) {
            ask(w, who);
        }
        break;
    case PK_TIMER_RELEASE:
        release(w, who);
        break;
    case PK_TIMER_DATA:
        read_anew(w, who);
        break;
    case PK_TIMER_ATTEMPT:
        pk_redlock_late(w, who);
        break;
    default:
        break;
    }
}

void pk_sim_client_crash(struct pk_world *w, uint32_t who)
{
    struct pk_sim_client *c = client_of(w, who);
    doubt(w, who, PK_DOUBT_CRASHED);
    for (int kind = 0; kind < PK_TIMER_KINDS; kind++) {
        pk_timer_stop(w, who, (enum pk_timer_kind)kind);
    }
    struct pk_sim_client before = *c;
    *c = (struct pk_sim_client){.openings = before.openings + 1,
                                .request = before.request + 1,
                                .last_write = before.last_write,
                                .attempt = before.attempt + 1};
    for (int i = 0; i < PK_LINKS; i++) {
        c->cut_until_us[i] = before.cut_until_us[i];
    }
}
