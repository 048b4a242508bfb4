/* SPDX-License-Identifier: MIT */
/*
 * The simulator's world for a page: what JavaScript can call. No imports at all: whatever
 * needs a clock, a file or a printf would show up as one, and a test would fail.
 *
 * There are a few *sides*, each with a script and the worlds that it gives: one as of
 * now, and one as far as it is known (the timeline shows what comes after now, too).
 * Going back in time is running again from the beginning: it takes less than a frame.
 *
 * Text goes in by room(), and comes out by text() and text_len(). Times are microseconds
 * in doubles, which are exact for 285 years.
 */
#include <stdlib.h>
#include <string.h>

#include "core/door.h"
#include "sim/export.h"
#include "sim/parity.h"
#include "sim/picture.h"
#include "sim/replay.h"
#include "sim/script.h"
#include "sim/tell.h"

#define EXPORT(name) __attribute__((export_name(#name), used))

enum { SIDES = 3, RUNS_MAX = 4000 };

struct view {
    struct pk_world *world; /* NULL: to be made */
    uint64_t at_us;
    bool settled;
    struct pk_checker checker;
};

struct side {
    struct pk_script script;
    struct view now, known;
};

static struct side sides[SIDES];
static struct pk_prose out;
static char *room_data;
static size_t room_len;
static char stopped[256];

/* ---- doors ---- */

void *pk_door_resize(void *old, size_t size)
{
    if (size == 0) {
        free(old);
        return NULL;
    }
    void *p = realloc(old, size);
    if (p == NULL) {
        pk_door_stop(__FILE__, __LINE__, "out of memory");
    }
    return p;
}

/* Leaves the reason where the page finds it after the trap. */
_Noreturn void pk_door_stop(const char *file, int line, const char *why)
{
    size_t at = 0;
    (void)line;
    for (const char *s = file; *s != '\0' && at < sizeof stopped / 2; s++) {
        stopped[at++] = *s;
    }
    stopped[at++] = ' ';
    for (const char *s = why; *s != '\0' && at < sizeof stopped - 1; s++) {
        stopped[at++] = *s;
    }
    __builtin_trap();
}

EXPORT(stopped_at) const char *stopped_at(void)
{
    return stopped;
}

/* ---- text in and out ---- */

EXPORT(room) char *room(uint32_t len)
{
    room_data = pk_door_resize(room_data, (size_t)len + 1);
    room_len = len;
    return room_data;
}

EXPORT(text) const char *text(void)
{
    return out.data;
}

EXPORT(text_len) uint32_t text_len(void)
{
    return (uint32_t)out.len;
}

static void begin_text(void)
{
    out.len = 0;
    pk_prose_add(&out, "");
}

static void number(const char *key, uint64_t n)
{
    pk_prose_key(&out, key);
    pk_prose_number(&out, n);
}

static void whole_number(const char *key, int64_t n)
{
    pk_prose_key(&out, key);
    pk_prose_signed(&out, n);
}

static void words(const char *key, const char *value)
{
    pk_prose_key(&out, key);
    pk_prose_quoted(&out, value);
}

static void truth(const char *key, bool value)
{
    pk_prose_key(&out, key);
    pk_prose_add(&out, value ? "true" : "false");
}

/* The next of a list's items, which are objects. */
static void next_item(void)
{
    pk_prose_add(&out, out.data[out.len - 1] == '[' ? "{" : ",{");
}

EXPORT(version) void version(void)
{
    begin_text();
    pk_prose_add(&out, PICKET_VERSION);
}

/* What there is to choose from, so that the page has no list of its own. */
EXPORT(about) void about(void)
{
    begin_text();
    pk_prose_add(&out, "{\"flavours\":[");
    for (int i = 0; i < PK_FLAVOUR_COUNT; i++) {
        next_item();
        words("name", pk_flavour_name((enum pk_flavour)i));
        words("sentence", pk_flavour_sentence((enum pk_flavour)i));
        pk_prose_add(&out, "}");
    }
    pk_prose_add(&out, "],\"checks\":[");
    for (int i = 0; i < PK_CHECK_COUNT; i++) {
        next_item();
        words("name", pk_check_name((enum pk_check)i));
        words("text", pk_check_text((enum pk_check)i));
        pk_prose_add(&out, "}");
    }
    pk_prose_add(&out, "]}");
}

/* ---- worlds ---- */

static void forget(struct view *v)
{
    pk_world_free(v->world);
    *v = (struct view){0};
}

static void changed(struct side *s)
{
    forget(&s->now);
    forget(&s->known);
}

static void begin_view(struct view *v, const struct pk_script *s)
{
    forget(v);
    v->world = pk_world_new(&s->config);
    for (uint32_t i = 0; i < s->n_acts; i++) {
        pk_world_act(v->world, &s->acts[i]);
    }
}

/* Brings it to that time, from the beginning if need be. */
static struct view *look(struct side *s, struct view *v, uint64_t at_us)
{
    if (v->world == NULL || v->settled || v->at_us > at_us) {
        if (v->world != NULL && v->at_us == at_us) {
            return v;
        }
        begin_view(v, &s->script);
    }
    pk_world_run(v->world, at_us);
    v->at_us = at_us;
    if (at_us >= s->script.until_us) {
        pk_world_settle(v->world);
        v->settled = true;
    }
    pk_checker_catch_up(&v->checker, v->world);
    return v;
}

EXPORT(go) void go(uint32_t side, double at_us)
{
    (void)look(&sides[side], &sides[side].now, (uint64_t)at_us);
}

/* When the next thing happens that a log would tell; at most `most_us`, which it is if
 * nothing does. */
EXPORT(step_on) double step_on(uint32_t side, double most_us)
{
    struct side *s = &sides[side];
    struct view *v = &s->now;
    uint64_t most = (uint64_t)most_us;
    uint32_t seen;
    (void)pk_world_trace(v->world, &seen);
    while (!v->settled && pk_world_next(v->world) <= most) {
        uint64_t at = pk_world_next(v->world);
        (void)pk_world_step(v->world);
        uint32_t count;
        const struct pk_record *trace = pk_world_trace(v->world, &count);
        for (; seen < count; seen++) {
            if (pk_record_weight(&trace[seen]) == PK_WEIGHT_EVENT) {
                (void)look(s, v, at);
                return (double)at;
            }
        }
    }
    (void)look(s, v, most);
    return most_us;
}

/* When the last such thing before now was; 0: there was none. */
EXPORT(step_back) double step_back(uint32_t side)
{
    const struct view *v = &sides[side].now;
    uint32_t count;
    const struct pk_record *trace = pk_world_trace(v->world, &count);
    while (count-- > 0) {
        const struct pk_record *r = &trace[count];
        if (r->at_us < v->at_us && pk_record_weight(r) == PK_WEIGHT_EVENT) {
            return (double)r->at_us;
        }
    }
    return 0;
}

/* ---- scripts ---- */

/* Reads the script in the room. False: the text says why, as an object. */
EXPORT(read_script) bool read_script(uint32_t side)
{
    struct pk_script script;
    struct pk_script_error error;
    begin_text();
    if (!pk_script_read(room_data, room_len, &script, &error)) {
        pk_prose_add(&out, "{");
        number("line", error.line);
        words("text", error.text);
        pk_prose_add(&out, "}");
        return false;
    }
    changed(&sides[side]);
    pk_script_free(&sides[side].script);
    sides[side].script = script;
    return true;
}

EXPORT(write_script) void write_script(uint32_t side)
{
    begin_text();
    pk_script_write(&sides[side].script, &out);
}

EXPORT(write_link) void write_link(uint32_t side)
{
    begin_text();
    pk_script_link(&sides[side].script, &out);
}

static void copy(struct pk_script *to, const struct pk_script *from)
{
    pk_script_free(to);
    *to = *from;
    to->acts = NULL;
    to->n_acts = to->acts_capacity = 0;
    for (uint32_t i = 0; i < from->n_acts; i++) {
        pk_script_add(to, &from->acts[i]);
    }
}

EXPORT(copy_side) void copy_side(uint32_t to, uint32_t from)
{
    changed(&sides[to]);
    copy(&sides[to].script, &sides[from].script);
}

/* Leaves out what these settings don't allow: nodes of a service that has none. Says how
 * many acts that were. */
static uint32_t drop_impossible(struct pk_script *s)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->n_acts; i++) {
        if (pk_world_act_wrong(&s->config, &s->acts[i]) == NULL) {
            s->acts[kept++] = s->acts[i];
        }
    }
    uint32_t dropped = s->n_acts - kept;
    s->n_acts = kept;
    return dropped;
}

enum setting { SET_FLAVOUR, SET_FENCE, SET_TTL, SET_CHECKPOINT, SET_UNTIL, SET_SEED };

/* Changes a setting; what the script expected holds no longer. -1: not possible; else how
 * many acts had to go. */
EXPORT(set) int32_t set(uint32_t side, uint32_t which, double value)
{
    struct pk_script *s = &sides[side].script;
    struct pk_world_config c = s->config;
    uint64_t until = s->until_us;
    switch ((enum setting)which) {
    case SET_FLAVOUR:
        c.flavour = (enum pk_flavour)value;
        break;
    case SET_FENCE:
        c.fence = (enum pk_protection)value;
        break;
    case SET_TTL:
        c.ttl_us = (uint64_t)value;
        break;
    case SET_CHECKPOINT:
        c.checkpoint = value != 0;
        break;
    case SET_UNTIL:
        until = (uint64_t)value;
        break;
    case SET_SEED:
        c.seed = (uint64_t)value;
        break;
    }
    if (pk_world_config_wrong(&c) != NULL) {
        return -1;
    }
    changed(&sides[side]);
    s->config = c;
    s->until_us = until;
    s->expects = which == SET_UNTIL && s->expects;
    return (int32_t)drop_impossible(s);
}

/* Adds an act; false: the text says why it can't be. */
EXPORT(act) bool act(uint32_t side, double at_us, uint32_t who, uint32_t op, double arg)
{
    struct pk_script *s = &sides[side].script;
    struct pk_act a = {
        .at_us = (uint64_t)at_us, .who = who, .op = (enum pk_op)op, .arg = (int64_t)arg};
    const char *wrong = pk_world_act_wrong(&s->config, &a);
    if (s->n_acts >= PK_ACTS_MAX) {
        wrong = "more than 4096 acts are too many";
    }
    begin_text();
    if (wrong != NULL) {
        pk_prose_add(&out, wrong);
        return false;
    }
    pk_script_add(s, &a);
    s->expects = false;
    changed(&sides[side]);
    return true;
}

/* Gives it the title in the room, without line breaks. */
EXPORT(name_script) void name_script(uint32_t side)
{
    struct pk_script *s = &sides[side].script;
    memset(s->title, 0, sizeof s->title);
    for (size_t i = 0; i < room_len && i < sizeof s->title - 1; i++) {
        s->title[i] = (unsigned char)room_data[i] < ' ' ? ' ' : room_data[i];
    }
}

/* Forgets all acts after that time; how many they were. */
EXPORT(drop_after) uint32_t drop_after(uint32_t side, double at_us)
{
    struct pk_script *s = &sides[side].script;
    uint32_t before = s->n_acts;
    while (s->n_acts > 0 && s->acts[s->n_acts - 1].at_us > (uint64_t)at_us) {
        s->n_acts--;
    }
    changed(&sides[side]);
    return before - s->n_acts;
}

EXPORT(facts) void facts(uint32_t side)
{
    const struct pk_script *s = &sides[side].script;
    begin_text();
    pk_prose_add(&out, "{");
    words("title", s->title);
    number("flavour", s->config.flavour);
    number("fence", s->config.fence);
    number("clients", s->config.clients);
    number("ttl", s->config.ttl_us);
    truth("checkpoint", s->config.checkpoint);
    number("seed", s->config.seed);
    number("mistakes", s->config.mistakes);
    number("loss", s->config.loss);
    number("slow", s->config.slow);
    number("delay", s->config.delay_us);
    number("jitter", s->config.jitter_us);
    number("until", s->until_us);
    number("acts", s->n_acts);
    number("last", s->n_acts > 0 ? s->acts[s->n_acts - 1].at_us : 0);
    truth("expects", s->expects);
    number("expect", s->expect);
    pk_prose_add(&out, "}");
}

/* ---- what can be seen ---- */

static void add_client(const struct pk_sim_client_view *c)
{
    static const char *const phases[] = {"idle", "asking", "queued", "holding"};
    next_item();
    words("phase", phases[c->phase]);
    truth("believes", c->believes);
    truth("paused", c->paused);
    truth("cut", c->cut);
    truth("cutData", c->cut_data);
    truth("ready", c->ready);
    number("token", c->token);
    whole_number("left", c->left_us);
    number("value", c->value);
    pk_prose_add(&out, "}");
}

EXPORT(view) void view(uint32_t side)
{
    const struct side *s = &sides[side];
    struct pk_world_view v;
    uint32_t count;
    pk_world_view(s->now.world, &v);
    (void)pk_world_trace(s->now.world, &count);
    begin_text();
    pk_prose_add(&out, "{");
    number("now", s->now.at_us);
    number("records", count);
    whole_number("holder", v.holder);
    number("token", v.holder_token);
    number("left", v.left_us);
    number("waiting", v.waiting);
    truth("paused", v.service_paused);
    number("counter", v.counter);
    number("fence", v.fence);
    number("accepted", v.accepted);
    number("rejected", v.rejected);
    number("highest", s->now.checker.highest);
    number("hits", s->now.checker.n_hits);
    pk_prose_key(&out, "clients");
    pk_prose_add(&out, "[");
    for (uint32_t i = 0; i < s->script.config.clients; i++) {
        add_client(&v.clients[i]);
    }
    pk_prose_add(&out, "]}");
}

static void add_hits(const struct pk_checker *c)
{
    pk_prose_add(&out, "[");
    for (uint32_t i = 0; i < c->n_hits; i++) {
        const struct pk_hit *h = &c->hits[i];
        struct pk_prose why = {0};
        pk_hit_explain(h, &why);
        next_item();
        words("check", pk_check_name(h->check));
        words("text", pk_check_text(h->check));
        words("why", why.data);
        number("at", h->at_us);
        number("record", h->record);
        number("who", h->who);
        number("other", h->other);
        number("token", h->token);
        number("otherToken", h->other_token);
        pk_prose_add(&out, "}");
        pk_prose_free(&why);
    }
    pk_prose_add(&out, "]");
}

/* What is broken by now. */
EXPORT(hits) void hits(uint32_t side)
{
    begin_text();
    add_hits(&sides[side].now.checker);
}

static void add_record(const struct pk_record *r, uint32_t number_of)
{
    struct pk_prose told = {0};
    pk_record_tell(r, &told);
    next_item();
    number("n", number_of);
    number("at", r->at_us);
    words("kind", pk_record_name(r->kind));
    number("who", r->who);
    number("code", r->code);
    number("token", r->token);
    number("weight", pk_record_weight(r));
    words("text", told.data);
    pk_prose_add(&out, "}");
    pk_prose_free(&told);
}

static void add_records(const struct view *v, uint32_t from)
{
    uint32_t count;
    const struct pk_record *trace = pk_world_trace(v->world, &count);
    pk_prose_add(&out, "[");
    for (uint32_t i = from; i < count; i++) {
        add_record(&trace[i], i);
    }
    pk_prose_add(&out, "]");
}

/* What happened by now, from that record on. */
EXPORT(records) void records(uint32_t side, uint32_t from)
{
    begin_text();
    add_records(&sides[side].now, from);
}

/* Everything, for who wants to look at it with other tools: what `picket sim run --json`
 * says. */
EXPORT(everything) void everything(uint32_t side)
{
    struct side *s = &sides[side];
    const struct view *v = look(s, &s->known, s->script.until_us);
    begin_text();
    pk_export_json(&s->script, v->world, &v->checker, &out);
}

/* The picture of the whole run, with its own colours. */
EXPORT(whole_picture) void whole_picture(uint32_t side, uint32_t width)
{
    struct side *s = &sides[side];
    const struct view *v = look(s, &s->known, s->script.until_us);
    begin_text();
    pk_export_picture(&s->script, v->world, &v->checker, width, &out);
}

/* The timeline from..to, of what is known by `seen`, in the page's colours. */
EXPORT(picture)
void picture(uint32_t side, double from, double to, double seen, uint32_t width)
{
    struct side *s = &sides[side];
    const struct view *v = look(s, &s->known, (uint64_t)seen);
    struct pk_picture p = {.clients = s->script.config.clients,
                           .from_us = (uint64_t)from,
                           .to_us = (uint64_t)to,
                           .seen_us = (uint64_t)seen,
                           .width = width,
                           .hits = v->checker.hits,
                           .n_hits = v->checker.n_hits,
                           .title = s->script.title};
    p.nodes = s->script.config.flavour == PK_FLAVOUR_REDLOCK ? PK_NODES_MAX : 0;
    p.trace = pk_world_trace(v->world, &p.count);
    begin_text();
    pk_picture_draw(&p, &out);
}

/* ---- traces of real clusters ---- */

static struct pk_replay *replay;

/* Reads the trace in the room. False: the text says why, as an object. */
EXPORT(read_trace) bool read_trace(void)
{
    uint32_t line = 0;
    if (replay != NULL) {
        pk_replay_free(replay);
    }
    replay = pk_replay_new(pk_bytes("", 0));
    const char *wrong = pk_replay_read(replay, room_data, room_len, &line);
    begin_text();
    if (wrong != NULL) {
        pk_prose_add(&out, "{");
        number("line", line);
        words("text", wrong);
        pk_prose_add(&out, "}");
    }
    return wrong == NULL;
}

/* What it is about: totals, and its locks with how often each was broken. */
EXPORT(trace_summary) void trace_summary(void)
{
    begin_text();
    pk_prose_add(&out, "{");
    number("grants", replay->grants);
    number("renewals", replay->renewals);
    number("refused", replay->refused);
    number("leaders", replay->leaders);
    number("gaps", replay->gaps);
    number("first", replay->first_ms);
    number("last", replay->last_ms);
    truth("cut", replay->cut);
    pk_prose_key(&out, "locks");
    pk_prose_add(&out, "[");
    const struct pk_replay_lock *l = pk_replay_first(replay);
    for (; l != NULL; l = pk_replay_next(l)) {
        next_item();
        words("name", l->name);
        number("hits", l->checker.n_hits);
        pk_prose_add(&out, "}");
    }
    pk_prose_add(&out, "]}");
}

static const struct pk_replay_lock *lock_number(uint32_t n)
{
    const struct pk_replay_lock *l = pk_replay_first(replay);
    while (l != NULL && n-- > 0) {
        l = pk_replay_next(l);
    }
    return l;
}

static struct pk_replay_part part_of(double from_us, double to_us)
{
    return (struct pk_replay_part){(uint64_t)from_us, (uint64_t)to_us};
}

EXPORT(trace_lock)
void trace_lock(uint32_t n, double from_us, double to_us, uint32_t most)
{
    const struct pk_replay_lock *l = lock_number(n);
    begin_text();
    if (l != NULL) {
        pk_replay_lock_json(replay, l, part_of(from_us, to_us), most, &out);
    }
}

EXPORT(trace_picture)
void trace_picture(uint32_t n, double from_us, double to_us, uint32_t width)
{
    const struct pk_replay_lock *l = lock_number(n);
    begin_text();
    if (l != NULL) {
        pk_replay_picture(replay, l, part_of(from_us, to_us), width, false, &out);
    }
}

/* ---- looking for trouble ---- */

/* A random script with the settings of side 0 and that seed becomes this side's; the mask
 * of the checks that it hits. */
EXPORT(hunt) uint32_t hunt(uint32_t side, double seed, uint32_t rough, uint32_t jumps)
{
    struct side *s = &sides[side];
    struct pk_world_config c = sides[0].script.config;
    struct pk_checker checker;
    c.seed = (uint64_t)seed;
    changed(s);
    pk_script_free(&s->script);
    pk_script_random(&s->script, &c, rough, jumps != 0);
    pk_world_free(pk_script_run(&s->script, &checker));
    return pk_checker_mask(&checker);
}

/* Makes it as small as it gets while any of these checks is still hit. */
EXPORT(shrink) uint32_t shrink(uint32_t side, uint32_t mask)
{
    changed(&sides[side]);
    return pk_script_shrink(&sides[side].script, mask, RUNS_MAX);
}

/* What all of a random world comes to, script, trace, verdict and picture: the same
 * number as natively, or the page would show something else than the product. */
EXPORT(parity) uint64_t parity(uint32_t flavour, uint32_t fence, double seed)
{
    struct pk_world_config c = pk_world_defaults();
    c.flavour = (enum pk_flavour)flavour;
    c.fence = (enum pk_protection)fence;
    c.seed = (uint64_t)seed;
    return pk_parity(&c);
}
