/* SPDX-License-Identifier: MIT */
#include "sim/picture.h"

#include <string.h>

enum {
    LEFT = 76,
    RIGHT = 20,
    TOP = 10,
    LANE = 46,
    NODE_LANE = 20,
    AXIS = 26,
    HOLD_Y = 6, /* within a lane */
    BELIEF_Y = 21,
    BAR = 12,
    TRUST_Y = 38,
    NAME_CHARS = 10, /* of a lane's name */
};

/* What is being drawn, and what was seen of it so far. */
struct drawing {
    const struct pk_picture *p;
    struct pk_prose *out;
};

static const char style[] =
    "<style>"
    "svg{font:11px system-ui,sans-serif;--ink:#1b1f24;--paper:#fff;--faint:#8a929b;"
    "--hold:#00805d;--onhold:#fff;--wait:#e69f00;--believe:#d55e00;--bad:#a3377a;--data:#"
    "0072b2}"
    "@media(prefers-color-scheme:dark){svg{--ink:#e8eaed;--paper:#14181d;--faint:#7d8691;"
    "--hold:#2cc495;--onhold:#06231a;--wait:#f0b429;--believe:#ff8a3d;--bad:#e07ab8;--"
    "data:#56b4e9}}"
    ".paper{fill:var(--paper)}.ink{fill:var(--ink)}.faint{fill:var(--faint)}"
    ".tick{fill:var(--faint);text-anchor:middle}.owner{fill:var(--hold);fill-opacity:.22}"
    ".rule{stroke:var(--faint);stroke-opacity:.35}"
    ".hold{fill:var(--hold)}.onhold{fill:var(--onhold);font-weight:600}"
    ".wait{fill:var(--wait);fill-opacity:.55}"
    ".belief{fill:none;stroke:var(--believe);stroke-width:1.5;stroke-dasharray:4 3}"
    ".trust{stroke:var(--hold);stroke-width:2}"
    ".pause{fill:url(#hatch)}.hatch{stroke:var(--ink);stroke-opacity:.35}"
    ".mark{stroke:var(--bad);stroke-width:1.5}"
    ".cut{stroke:var(--bad);stroke-width:2;stroke-dasharray:2 4}"
    ".write{stroke:var(--data);stroke-width:1.4}.refused{stroke:var(--faint)}"
    ".stale{stroke:var(--bad);stroke-width:2.2}"
    ".data{fill:var(--data)}.badink{fill:var(--bad);font-weight:700}"
    ".fence{fill:none;stroke:var(--data);stroke-width:2}"
    ".violation{stroke:var(--bad);stroke-width:1.5;stroke-dasharray:1 2}"
    "</style>";

/* ---- places ---- */

/* Where the last lane ends. */
static uint32_t bottom_of(const struct pk_picture *p)
{
    return TOP + (p->clients + 2) * LANE + p->nodes * NODE_LANE;
}

uint32_t pk_picture_height(const struct pk_picture *p)
{
    return bottom_of(p) + AXIS;
}

static uint32_t place_of(const struct pk_picture *p, uint64_t at_us)
{
    uint64_t span = p->to_us > p->from_us ? p->to_us - p->from_us : 1;
    uint64_t room = p->width - LEFT - RIGHT;
    uint64_t at = at_us < p->from_us ? p->from_us : at_us > p->to_us ? p->to_us : at_us;
    return LEFT + (uint32_t)((at - p->from_us) * room / span);
}

/* The same of what happens: what is not known yet, like a hold's end, is not drawn. */
static uint32_t x_of(const struct pk_picture *p, uint64_t at_us)
{
    bool known = p->seen_us == 0 || at_us <= p->seen_us;
    return place_of(p, known ? at_us : p->seen_us);
}

static bool has_lane(const struct pk_picture *p, uint32_t node)
{
    return node >= PK_WHO_NODE && node < PK_WHO_NODE + p->nodes;
}

static uint32_t y_of(const struct pk_picture *p, uint32_t who)
{
    uint32_t service = TOP + p->clients * LANE;
    if (who < PK_CLIENTS_MAX) {
        return TOP + who * LANE;
    }
    if (who == PK_WHO_RESOURCE) {
        return service + LANE + p->nodes * NODE_LANE;
    }
    return has_lane(p, who) ? service + LANE + (who - PK_WHO_NODE) * NODE_LANE : service;
}

static uint32_t height_of(const struct pk_picture *p, uint32_t who)
{
    return has_lane(p, who) ? NODE_LANE : LANE;
}

static bool in_sight(const struct pk_picture *p, uint64_t from_us, uint64_t to_us)
{
    return to_us >= p->from_us && from_us <= p->to_us;
}

/* ---- shapes ---- */

static void attribute(struct drawing *d, const char *name, uint64_t value)
{
    pk_prose_add(d->out, " ");
    pk_prose_add(d->out, name);
    pk_prose_add(d->out, "=\"");
    pk_prose_number(d->out, value);
    pk_prose_add(d->out, "\"");
}

static void begin(struct drawing *d, const char *shape, const char *kind)
{
    pk_prose_add(d->out, "<");
    pk_prose_add(d->out, shape);
    pk_prose_add(d->out, " class=\"");
    pk_prose_add(d->out, kind);
    pk_prose_add(d->out, "\"");
}

static void line(struct drawing *d, const char *kind, uint32_t x1, uint32_t y1,
                 uint32_t x2, uint32_t y2)
{
    begin(d, "line", kind);
    attribute(d, "x1", x1);
    attribute(d, "y1", y1);
    attribute(d, "x2", x2);
    attribute(d, "y2", y2);
    pk_prose_add(d->out, "/>");
}

struct box {
    uint64_t from_us, to_us;
    uint32_t y, height, record;
};

static void bar(struct drawing *d, const char *kind, struct box b)
{
    if (!in_sight(d->p, b.from_us, b.to_us)) {
        return;
    }
    uint32_t x = x_of(d->p, b.from_us);
    uint32_t end = x_of(d->p, b.to_us);
    begin(d, "rect", kind);
    attribute(d, "x", x);
    attribute(d, "y", b.y);
    attribute(d, "width", end > x + 2 ? end - x : 2);
    attribute(d, "height", b.height);
    attribute(d, "rx", 2);
    attribute(d, "data-record", b.record);
    pk_prose_add(d->out, "/>");
}

static void escaped(struct pk_prose *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '<' || *text == '&' || *text == '"') {
            pk_prose_add(out, *text == '<' ? "&lt;" : *text == '&' ? "&amp;" : "&quot;");
        } else {
            pk_prose_bytes(out, text, 1);
        }
    }
}

static void begin_text(struct drawing *d, const char *kind, uint32_t x, uint32_t y)
{
    begin(d, "text", kind);
    attribute(d, "x", x);
    attribute(d, "y", y);
    pk_prose_add(d->out, ">");
}

static void end_text(struct drawing *d)
{
    pk_prose_add(d->out, "</text>");
}

/* ---- lanes ---- */

static void draw_axis(struct drawing *d)
{
    static const uint64_t steps[] = {1000,      2000,      5000,     10000,    20000,
                                     50000,     100000,    200000,   500000,   1000000,
                                     2000000,   5000000,   10000000, 20000000, 60000000,
                                     300000000, 3600000000};
    const struct pk_picture *p = d->p;
    uint32_t bottom = bottom_of(p);
    size_t i = 0;
    while (i + 1 < sizeof steps / sizeof steps[0] &&
           (p->to_us - p->from_us) / steps[i] > p->width / 70) {
        i++;
    }
    for (uint64_t at = (p->from_us + steps[i] - 1) / steps[i] * steps[i]; at <= p->to_us;
         at += steps[i]) {
        line(d, "rule", place_of(p, at), TOP, place_of(p, at), bottom);
        begin_text(d, "tick", place_of(p, at), bottom + 16);
        pk_prose_seconds(d->out, (int64_t)at);
        pk_prose_add(d->out, " s");
        end_text(d);
    }
}

/* As much of a name as there is room for; the whole one for who points at it. */
static void short_name(struct pk_prose *out, const char *name)
{
    char head[4 * NAME_CHARS + 1];
    size_t n = 0;
    for (uint32_t chars = 0; name[n] != '\0' && n < sizeof head - 1; n++) {
        chars += ((unsigned char)name[n] & 0xc0) != 0x80;
        if (chars > NAME_CHARS) {
            break;
        }
        head[n] = name[n];
    }
    head[n] = '\0';
    if (name[n] != '\0') {
        pk_prose_add(out, "<title>");
        escaped(out, name);
        pk_prose_add(out, "</title>");
    }
    escaped(out, head);
    pk_prose_add(out, name[n] != '\0' ? "\xe2\x80\xa6" : "");
}

static void draw_lane_name(struct drawing *d, uint32_t who)
{
    uint32_t bottom = y_of(d->p, who) + height_of(d->p, who);
    begin_text(d, has_lane(d->p, who) ? "faint" : "ink", 8,
               (y_of(d->p, who) + bottom) / 2 + 4);
    if (who < d->p->clients && d->p->names != NULL) {
        short_name(d->out, d->p->names[who]);
    } else {
        pk_prose_who(d->out, who);
    }
    end_text(d);
    line(d, "rule", 0, bottom, d->p->width, bottom);
}

/* When what record `i` began ends: the time of the next record of these kinds about the
 * same, or the end of the picture. */
static uint64_t end_of(const struct pk_picture *p, uint32_t i, uint32_t kind,
                       uint32_t or_kind)
{
    for (uint32_t k = i + 1; k < p->count; k++) {
        const struct pk_record *r = &p->trace[k];
        if (r->who == p->trace[i].who && (r->kind == kind || r->kind == or_kind)) {
            return r->at_us;
        }
    }
    return p->to_us;
}

/* The same hold in the service's lane: whose, and with which token. */
static void draw_owner(struct drawing *d, uint32_t i, uint64_t end_us)
{
    const struct pk_picture *p = d->p;
    const struct pk_record *r = &p->trace[i];
    uint32_t y = y_of(p, PK_WHO_SERVICE) + 13;
    bar(d, "owner", (struct box){r->at_us, end_us, y, 20, i});
    if (in_sight(p, r->at_us, r->at_us) && x_of(p, end_us) > x_of(p, r->at_us) + 16) {
        bool room = x_of(p, end_us) > x_of(p, r->at_us) + 36;
        begin_text(d, "ink", x_of(p, r->at_us) + 4, y + 14);
        if (p->names == NULL) {
            pk_prose_who(d->out, r->who);
            pk_prose_add(d->out, room && r->token != 0 ? " " : "");
        }
        if (r->token != 0 && (room || p->names != NULL)) {
            pk_prose_number(d->out, r->token);
        }
        end_text(d);
    }
}

static void draw_hold(struct drawing *d, uint32_t i)
{
    const struct pk_picture *p = d->p;
    const struct pk_record *r = &p->trace[i];
    uint64_t end = end_of(p, i, PK_REC_ENDED, PK_REC_ENDED);
    uint32_t y = y_of(p, r->who) + HOLD_Y;
    bar(d, "hold", (struct box){r->at_us, end, y, BAR, i});
    if (r->token != 0 && x_of(p, end) > x_of(p, r->at_us) + 48) {
        begin_text(d, "onhold", x_of(p, r->at_us) + 4, y + 10);
        pk_prose_add(d->out, "token ");
        pk_prose_number(d->out, r->token);
        end_text(d);
    }
    draw_owner(d, i, end);
}

/* How long the client trusts its lease from here: until it trusts it for longer, loses
 * it, or the time is over. */
static void draw_trust(struct drawing *d, uint32_t i)
{
    const struct pk_picture *p = d->p;
    const struct pk_record *r = &p->trace[i];
    uint64_t end = r->arg;
    for (uint32_t k = i + 1; k < p->count && p->trace[k].at_us < end; k++) {
        const struct pk_record *n = &p->trace[k];
        bool over = n->kind == PK_REC_TRUSTED || n->kind == PK_REC_LOST ||
                    n->kind == PK_REC_DOUBTED;
        end = n->who == r->who && over ? n->at_us : end;
    }
    if (in_sight(p, r->at_us, end)) {
        uint32_t y = y_of(p, r->who) + TRUST_Y;
        line(d, "trust", x_of(p, r->at_us), y, x_of(p, end), y);
    }
}

static void draw_pause(struct drawing *d, uint32_t i)
{
    const struct pk_record *r = &d->p->trace[i];
    uint32_t height = height_of(d->p, r->who) - 4;
    bar(d, "pause", (struct box){r->at_us, r->arg, y_of(d->p, r->who) + 2, height, i});
}

/* A word in the lane of whom something befell. */
static void draw_mark(struct drawing *d, uint32_t i)
{
    const struct pk_record *r = &d->p->trace[i];
    if (!in_sight(d->p, r->at_us, r->at_us)) {
        return;
    }
    uint32_t x = x_of(d->p, r->at_us);
    uint32_t y = y_of(d->p, r->who);
    line(d, "mark", x, y + 2, x, y + height_of(d->p, r->who) - 2);
    begin_text(d, "badink", x + 4, y + height_of(d->p, r->who) - 6);
    if (r->kind == PK_REC_JUMPED) {
        pk_prose_add(d->out, (int64_t)r->arg < 0 ? "clock " : "clock +");
        pk_prose_seconds(d->out, (int64_t)r->arg);
        pk_prose_add(d->out, " s");
    } else {
        pk_prose_add(d->out, r->kind == PK_REC_CRASHED ? "crash" : "new leader");
    }
    end_text(d);
}

static void draw_cut(struct drawing *d, uint32_t i)
{
    const struct pk_record *r = &d->p->trace[i];
    uint64_t healed = end_of(d->p, i, PK_REC_HEALED, PK_REC_HEALED);
    uint64_t end = r->arg != 0 && r->arg < healed ? r->arg : healed;
    uint32_t y = y_of(d->p, r->who) + LANE - 3;
    if (in_sight(d->p, r->at_us, end)) {
        line(d, "cut", x_of(d->p, r->at_us), y, x_of(d->p, end), y);
    }
}

/* ---- the resource ---- */

/* When the write that arrived with record `i` was sent. */
static uint64_t sent_at(const struct pk_picture *p, uint32_t i)
{
    const struct pk_record *r = &p->trace[i];
    for (uint32_t k = i; k-- > 0;) {
        const struct pk_record *s = &p->trace[k];
        if (s->kind == PK_REC_SENT && s->who == r->who && s->code == PK_WORD_WRITE &&
            s->arg <= r->at_us && s->arg + 1 >= r->at_us) {
            return s->at_us;
        }
    }
    return r->at_us;
}

static bool is_hit(const struct pk_picture *p, uint32_t i)
{
    for (uint32_t k = 0; k < p->n_hits; k++) {
        if (p->hits[k].record == i) {
            return true;
        }
    }
    return false;
}

static void draw_write(struct drawing *d, uint32_t i)
{
    const struct pk_picture *p = d->p;
    const struct pk_record *r = &p->trace[i];
    if (!in_sight(p, r->at_us, r->at_us)) {
        return;
    }
    bool bad = is_hit(p, i);
    uint32_t y = y_of(p, PK_WHO_RESOURCE);
    const char *kind = r->code != 0 ? "refused" : bad ? "stale" : "write";
    line(d, kind, x_of(p, sent_at(p, i)), y_of(p, r->who) + TRUST_Y - 4,
         x_of(p, r->at_us), y + 10);
    begin(d, "text", r->code != 0 ? "faint" : bad ? "badink" : "data");
    attribute(d, "x", x_of(p, r->at_us) + 3);
    attribute(d, "y", (uint64_t)y + 14);
    attribute(d, "data-record", i);
    pk_prose_add(d->out, ">");
    pk_prose_add(d->out, r->code != 0 ? "\xe2\x9c\x95 " : bad ? "! " : "");
    pk_prose_number(d->out, r->arg);
    end_text(d);
}

/* A step up for every token that the fence is raised to; down, should it ever fall. */
static void draw_fence(struct drawing *d)
{
    const struct pk_picture *p = d->p;
    uint64_t highest = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        bool raised = p->trace[i].kind == PK_REC_RAISED;
        highest = raised && p->trace[i].token > highest ? p->trace[i].token : highest;
    }
    if (highest == 0) {
        return;
    }
    uint32_t floor = y_of(p, PK_WHO_RESOURCE) + LANE - 5;
    uint32_t x = LEFT;
    uint32_t y = floor;
    for (uint32_t i = 0; i <= p->count; i++) {
        bool end = i == p->count;
        if (!end && p->trace[i].kind != PK_REC_RAISED) {
            continue;
        }
        uint32_t next = x_of(p, end ? p->to_us : p->trace[i].at_us);
        line(d, "fence", x, y, next, y);
        uint32_t up = end ? y : floor - (uint32_t)(p->trace[i].token * 22 / highest);
        line(d, "fence", next, y, next, up);
        x = next;
        y = up;
    }
}

/* ---- all ---- */

static void draw_record(struct drawing *d, uint32_t i)
{
    const struct pk_picture *p = d->p;
    const struct pk_record *r = &p->trace[i];
    uint32_t y = y_of(p, r->who);
    switch (r->kind) {
    case PK_REC_QUEUED:
        bar(d, "wait",
            (struct box){r->at_us, end_of(p, i, PK_REC_GRANTED, PK_REC_LEFT),
                         y + HOLD_Y + 3, BAR - 6, i});
        break;
    case PK_REC_GRANTED:
        draw_hold(d, i);
        break;
    case PK_REC_BELIEVED:
        bar(d, "belief",
            (struct box){r->at_us, end_of(p, i, PK_REC_DOUBTED, PK_REC_BELIEVED),
                         y + BELIEF_Y, BAR, i});
        break;
    case PK_REC_TRUSTED:
        draw_trust(d, i);
        break;
    case PK_REC_PAUSED:
        draw_pause(d, i);
        break;
    case PK_REC_CUT:
        draw_cut(d, i);
        break;
    case PK_REC_WROTE:
        draw_write(d, i);
        break;
    case PK_REC_JUMPED:
    case PK_REC_CRASHED:
    case PK_REC_FAILOVER:
        draw_mark(d, i);
        break;
    default:
        break;
    }
}

static void draw_hits(struct drawing *d)
{
    const struct pk_picture *p = d->p;
    uint32_t bottom = bottom_of(p);
    for (uint32_t i = 0; i < p->n_hits; i++) {
        uint32_t x = x_of(p, p->hits[i].at_us);
        if (in_sight(p, p->hits[i].at_us, p->hits[i].at_us)) {
            line(d, "violation", x, TOP, x, bottom);
        }
    }
}

void pk_picture_draw(const struct pk_picture *p, struct pk_prose *out)
{
    struct drawing d = {p, out};
    uint32_t height = pk_picture_height(p);
    pk_prose_add(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\"");
    attribute(&d, "width", p->width);
    attribute(&d, "height", height);
    pk_prose_add(out, " viewBox=\"0 0 ");
    pk_prose_number(out, p->width);
    pk_prose_add(out, " ");
    pk_prose_number(out, height);
    pk_prose_add(out, "\"");
    attribute(&d, "data-left", LEFT);
    attribute(&d, "data-right", RIGHT);
    pk_prose_add(out, "><title>");
    escaped(out, p->title);
    pk_prose_add(out, "</title>");
    if (p->styled) {
        pk_prose_add(out, style);
    }
    pk_prose_add(out, "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" "
                      "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
                      "<line class=\"hatch\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\"/>"
                      "</pattern></defs>");
    begin(&d, "rect", "paper");
    attribute(&d, "width", p->width);
    attribute(&d, "height", height);
    pk_prose_add(out, "/>");
    draw_axis(&d);
    for (uint32_t i = 0; i < p->clients; i++) {
        draw_lane_name(&d, i);
    }
    draw_lane_name(&d, PK_WHO_SERVICE);
    for (uint32_t i = 0; i < p->nodes; i++) {
        draw_lane_name(&d, PK_WHO_NODE + i);
    }
    draw_lane_name(&d, PK_WHO_RESOURCE);
    draw_fence(&d);
    for (uint32_t i = 0; i < p->count; i++) {
        draw_record(&d, i);
    }
    draw_hits(&d);
    pk_prose_add(out, "</svg>\n");
}
