/* SPDX-License-Identifier: MIT */
#include "player.h"

#include <inttypes.h>

#include "core/door.h"

enum { FIRST_SHARED_REQUEST = 1001, ROWS = 100 };

static bool wrong(struct player *p, uint32_t line, const char *why, struct pk_bytes what)
{
    return script_wrong(p->error, line, why, what);
}

/* ---- life ---- */

void player_init(struct player *p, struct script_error *error)
{
    memset(p, 0, sizeof *p);
    p->machine = pk_machine_new();
    p->n_clients = 1;
    p->next_shared = FIRST_SHARED_REQUEST;
    p->error = error;
}

void player_free(struct player *p)
{
    pk_machine_free(p->machine);
    pk_effects_free(&p->effects);
}

/* A machine with the same state; NULL when the snapshot does not come back as it was. */
static struct pk_machine *restored(struct pk_machine *m)
{
    unsigned char *bytes = NULL;
    unsigned char *again = NULL;
    size_t len = pk_machine_snapshot(m, &bytes);
    struct pk_machine *copy = pk_machine_restore(bytes, len);
    bool same = copy != NULL && pk_machine_digest(copy) == pk_machine_digest(m) &&
                pk_machine_snapshot(copy, &again) == len &&
                memcmp(bytes, again, len) == 0;
    pk_door_resize(bytes, 0);
    pk_door_resize(again, 0);
    if (!same) {
        pk_machine_free(copy);
        copy = NULL;
    }
    return copy;
}

struct player *player_copy(const struct player *from)
{
    struct player *p = pk_door_resize(NULL, sizeof *p);
    *p = *from;
    p->effects = (struct pk_effects){0};
    p->machine = restored(from->machine);
    PK_ASSERT(p->machine != NULL); /* player_line has seen it work on this very state */
    return p;
}

/* ---- what names stand for ---- */

static bool client_find(struct player *p, const struct script_line *line,
                        struct pk_bytes name, uint32_t *index)
{
    for (uint32_t i = 0; i < p->n_clients; i++) {
        if (pk_bytes_equal(p->clients[i].name, name)) {
            *index = i;
            return true;
        }
    }
    if (p->n_clients == CLIENTS_MAX) {
        return wrong(p, line->number, "too many clients in one script", name);
    }
    *index = p->n_clients++;
    p->clients[*index] = (struct player_client){.name = name, .next_request = 1};
    return true;
}

static bool lease_of(struct player *p, const struct script_line *line,
                     struct pk_bytes name, uint64_t *lease)
{
    uint32_t index = 0;
    if (!client_find(p, line, name, &index)) {
        return false;
    }
    *lease = p->clients[index].lease;
    return *lease != 0 ||
           wrong(p, line->number, "has no lease; open one or say lease=", name);
}

static bool is_of(const struct player *p, uint64_t lease, struct pk_bytes client)
{
    for (uint32_t i = 0; i < p->names.count; i++) {
        if (p->names.list[i].lease == lease) {
            return pk_bytes_equal(p->names.list[i].client, client);
        }
    }
    return false;
}

/* The token of the last grant of `name` to the client, or to anybody. */
static uint64_t token_on(const struct player *p, struct pk_bytes name,
                         struct pk_bytes client, bool anybody)
{
    for (uint32_t i = p->n_grants; i > 0; i--) {
        if (pk_bytes_equal(p->grants[i - 1].name, name) &&
            (anybody || is_of(p, p->grants[i - 1].lease, client))) {
            return p->grants[i - 1].token;
        }
    }
    return 0;
}

static bool fill_token(struct player *p, const struct script_line *line,
                       struct pk_command *c)
{
    const struct player_client *who = &p->clients[p->speaker];
    bool read = c->verb == PK_FENCE_GET && who->name.len == 0;
    if (read || c->verb == PK_LEAP) {
        return true; /* anybody's read; a leap from no token but the machine's own */
    }
    if (c->verb == PK_LOCK_RELEASE || c->verb == PK_LOCK_VALUE) {
        c->token = token_on(p, c->name, who->name, false);
    } else if (c->verb == PK_LOCK_BREAK) {
        c->token = token_on(p, c->name, who->name, true);
    } else {
        c->token = who->token;
    }
    return c->token != 0 ||
           wrong(p, line->number, "no grant to take the token from; say token=", c->name);
}

static bool fill_target(struct player *p, const struct script_line *line,
                        struct pk_command *c)
{
    c->target = line->lock.len == 0 ? p->clients[p->speaker].acquire : 0;
    for (uint32_t i = p->n_asked; i > 0 && c->target == 0; i--) {
        if (p->asked[i - 1].client == p->speaker &&
            pk_bytes_equal(p->asked[i - 1].name, line->lock)) {
            c->target = p->asked[i - 1].request;
        }
    }
    return c->target != 0 ||
           wrong(p, line->number, "no acquire to cancel; say target=", line->lock);
}

static void fill_request(struct player *p, const struct script_line *line,
                         struct pk_command *c)
{
    struct player_client *who = &p->clients[p->speaker];
    bool shared = c->verb == PK_LEASE_OPEN || c->verb == PK_LOCK_BREAK ||
                  c->verb == PK_CONFIGURE || c->verb == PK_LEAP ||
                  c->verb == PK_SET_VERSION;
    if (line->given & PK_F_REQUEST) {
        if (!shared && c->request >= who->next_request && c->request < UINT64_MAX) {
            who->next_request = c->request + 1;
        }
    } else if (shared) {
        c->request = p->next_shared++;
    } else if (who->name.len > 0) {
        c->request = who->next_request++;
    }
}

/* The epoch of the fence's mode as it is now. */
static uint64_t epoch_of(const struct player *p, struct pk_bytes name)
{
    struct pk_command show = {.verb = PK_FENCE_SHOW, .name = name};
    struct pk_effects out = {0};
    pk_machine_step(p->machine, &show, &out);
    uint64_t epoch = out.list[0].epoch;
    pk_effects_free(&out);
    return epoch;
}

/* The ids of a `renew`, and behind them what was heard; without any, the speaker's own.
 * The bytes live until the next one. */
static bool fill_leases(struct player *p, const struct script_line *line,
                        struct pk_command *c, struct text *ids)
{
    struct script_renewal own = {
        .client = line->client, .times = 1, .heard = line->heard};
    struct text heard = {0};
    bool itself = line->n_renewals == 0 && line->client.len > 0;
    uint32_t count = itself ? 1 : line->n_renewals;
    for (uint32_t i = 0; i < count; i++) {
        const struct script_renewal *r = itself ? &own : &line->renewals[i];
        uint64_t lease = r->lease;
        if (r->client.len > 0 && !lease_of(p, line, r->client, &lease)) {
            text_free(&heard);
            return false;
        }
        for (uint64_t n = 0; n < r->times; n++) {
            unsigned char id[8], number[4];
            pk_command_put_lease(id, 0, lease);
            pk_command_put_heard(number, 0, r->heard);
            text_add(ids, id, sizeof id);
            text_add(&heard, number, sizeof number);
            c->n_leases++;
        }
    }
    if (line->given & SCRIPT_GIVEN_HEARD) {
        text_add(ids, heard.data, heard.len);
        c->heard = (const unsigned char *)ids->data + 8 * (size_t)c->n_leases;
    }
    c->leases = (const unsigned char *)ids->data;
    text_free(&heard);
    return true;
}

/* The command a line means: what it says, and what it leaves to be known. */
static bool complete(struct player *p, const struct script_line *line,
                     struct pk_command *c, struct text *ids)
{
    uint32_t fields = pk_verb_fields(c->verb);
    uint32_t missing = fields & ~line->given;
    struct pk_bytes whose = line->of_client.len > 0 ? line->of_client : line->client;
    if (!(line->given & SCRIPT_GIVEN_PRINCIPAL)) {
        c->principal = line->client;
    }
    if ((missing & PK_F_LEASE) && !lease_of(p, line, whose, &c->lease)) {
        return false;
    }
    if ((missing & PK_F_TOKEN) && !fill_token(p, line, c)) {
        return false;
    }
    bool needs_target = !(fields & PK_F_OPTIONAL_TARGET);
    if ((missing & PK_F_TARGET) && needs_target && !fill_target(p, line, c)) {
        return false;
    }
    if (fields & PK_F_REQUEST) {
        fill_request(p, line, c);
    }
    if ((fields & PK_F_LEASES) && !fill_leases(p, line, c, ids)) {
        return false;
    }
    if (missing & PK_F_EPOCH) {
        c->epoch = epoch_of(p, c->name);
    }
    if (missing & PK_F_COUNT) {
        c->count = ROWS;
    }
    return true;
}

/* ---- what effects teach ---- */

static bool learn_grant(struct player *p, uint32_t line, const struct pk_effect *e)
{
    /* A set's parts share one token; any other grant must be higher than all before
     * (P2). */
    if (e->part == 0 ? e->token <= p->last_token : e->token != p->last_token) {
        return wrong(p, line, "P2 is broken: a token that does not grow", e->name);
    }
    p->last_token = e->token;
    if (p->n_grants == GRANTS_MAX) {
        return wrong(p, line, "too many grants in one script", e->name);
    }
    struct pk_bytes name = pk_bytes("", 0);
    for (uint32_t i = p->n_asked; i > 0 && name.len == 0; i--) {
        if (pk_bytes_equal(p->asked[i - 1].name, e->name)) {
            name = p->asked[i - 1].name; /* the effect's own bytes don't last */
        }
    }
    p->grants[p->n_grants].name = name;
    p->grants[p->n_grants].lease = e->lease;
    p->grants[p->n_grants++].token = e->token;
    for (uint32_t i = 1; i < p->n_clients; i++) {
        if (is_of(p, e->lease, p->clients[i].name)) {
            p->clients[i].token = e->token;
        }
    }
    return true;
}

static bool learn_opening(struct player *p, uint32_t line, uint64_t lease)
{
    struct player_client *who = &p->clients[p->speaker];
    who->lease = lease;
    if (who->name.len == 0 || is_of(p, lease, who->name)) {
        return true;
    }
    if (p->names.count == LEASE_NAMES_MAX) {
        return wrong(p, line, "too many leases in one script", who->name);
    }
    p->names.list[p->names.count].client = who->name;
    p->names.list[p->names.count++].lease = lease;
    return true;
}

static bool learn(struct player *p, uint32_t line, const struct pk_command *c)
{
    for (uint32_t i = 0; i < p->effects.count; i++) {
        const struct pk_effect *e = &p->effects.list[i];
        bool good = true;
        if (e->kind == PK_EV_GRANTED) {
            good = learn_grant(p, line, e);
        } else if (e->kind == PK_EV_LEAPT) {
            p->last_token = e->token;
        } else if (e->kind == PK_REPLY && e->status == PK_OK) {
            if (c->verb == PK_LEASE_OPEN) {
                good = learn_opening(p, line, e->lease);
            }
        }
        if (!good) {
            return false;
        }
    }
    return true;
}

static bool remember_asked(struct player *p, uint32_t line, const struct pk_command *c)
{
    uint32_t parts = c->n_parts < PK_SET_MAX ? c->n_parts : PK_SET_MAX;
    for (uint32_t i = 0; i < parts; i++) {
        if (p->n_asked == ASKED_MAX) {
            return wrong(p, line, "too many acquires in one script", c->parts[i].name);
        }
        p->asked[p->n_asked].name = c->parts[i].name;
        p->asked[p->n_asked].client = p->speaker;
        p->asked[p->n_asked++].request = c->request;
    }
    if (c->verb == PK_LOCK_ACQUIRE) {
        p->clients[p->speaker].acquire = c->request;
    }
    return true;
}

/* ---- the step ---- */

/* Steps the machine with the command as it comes out of its own encoding. */
static bool step(struct player *p, uint32_t line, const struct pk_command *c)
{
    pk_effects_reset(&p->effects);
    if (pk_command_wrong(c) != NULL) {
        pk_machine_step(p->machine, c, &p->effects);
        return true;
    }
    struct pk_command decoded;
    size_t len = pk_command_size(c);
    unsigned char *bytes = pk_door_resize(NULL, len);
    bool good = pk_command_encode(c, bytes) == len &&
                pk_command_decode(bytes, len, &decoded) == len;
    if (good) {
        pk_machine_step(p->machine, &decoded, &p->effects);
    }
    pk_door_resize(bytes, 0);
    return good || wrong(p, line, "the command does not survive its encoding", c->name);
}

static bool inspect(struct player *p, uint32_t line)
{
    const char *broken = pk_machine_check(p->machine);
    if (broken != NULL) {
        return wrong(p, line, broken, pk_text("the machine is broken"));
    }
    if (pk_machine_last_token(p->machine) < p->last_token) {
        return wrong(p, line, "the machine forgot a token", pk_bytes("", 0));
    }
    struct pk_machine *copy = restored(p->machine);
    if (copy == NULL) {
        return wrong(p, line, "the snapshot is not restored as it was", pk_bytes("", 0));
    }
    if (p->restore_always) {
        pk_machine_free(p->machine);
        p->machine = copy;
    } else {
        pk_machine_free(copy);
    }
    return true;
}

static void print(struct player *p, const struct pk_command *c, struct text *output)
{
    struct pk_bytes client = p->clients[p->speaker].name;
    for (uint32_t i = 0; i < p->effects.count; i++) {
        const struct pk_effect *e = &p->effects.list[i];
        bool silent = c->verb == PK_TICK && e->kind == PK_REPLY && e->status == PK_OK;
        if (!silent) {
            print_effect(output, e, c, client, &p->names);
        }
    }
}

static uint64_t stamp_of(const struct player *p, const struct script_line *line)
{
    uint64_t clock = pk_machine_clock(p->machine);
    if (line->when == SCRIPT_AT) {
        return line->time_ms;
    }
    return line->when == SCRIPT_AFTER ? clock + line->time_ms : clock;
}

static bool run_command(struct player *p, const struct script_line *line,
                        struct text *output)
{
    struct player_client *who = &p->clients[p->speaker];
    struct text ids = {0};
    struct pk_command c = line->command;
    if (line->action == SCRIPT_REPEAT) {
        if (!who->spoke || who->last.verb == PK_LEASE_RENEW) {
            return wrong(p, line->number, "nothing to repeat", who->name);
        }
        c = who->last;
    } else if (!complete(p, line, &c, &ids)) {
        text_free(&ids);
        return false;
    }
    c.stamp_ms = stamp_of(p, line);
    who->last = c;
    who->last.leases = NULL; /* they go with `ids` */
    who->last.heard = NULL;
    who->spoke = true;
    bool asks = c.verb == PK_LOCK_ACQUIRE || c.verb == PK_KEY_TAKE;
    bool asked = !asks || remember_asked(p, line->number, &c);
    bool good = asked && step(p, line->number, &c) && learn(p, line->number, &c);
    if (good) {
        print(p, &c, output);
        good = inspect(p, line->number);
    }
    text_free(&ids);
    return good;
}

/* ---- lines that are no command ---- */

static bool run_snapshot(struct player *p, const struct script_line *line,
                         struct text *output)
{
    struct pk_machine *copy = restored(p->machine);
    if (copy == NULL) {
        return wrong(p, line->number, "the snapshot is not restored as it was",
                     pk_bytes("", 0));
    }
    pk_machine_free(p->machine);
    p->machine = copy;
    text_addf(output, "digest unchanged\n");
    return true;
}

static void print_deadline(const struct player *p, struct text *output)
{
    uint64_t at = pk_machine_next_deadline(p->machine);
    text_addf(output, "%s", at == UINT64_MAX ? "no deadline" : "next deadline at ");
    if (at != UINT64_MAX) {
        text_duration(output, at);
    }
    text_addf(output, "\n");
}

static void print_stats(const struct player *p, struct text *output)
{
    struct pk_stats s = pk_machine_stats(p->machine);
    text_addf(output,
              "leases=%" PRIu64 " locks=%" PRIu64 " holds=%" PRIu64 " waits=%" PRIu64
              " fences=%" PRIu64 " bytes=%" PRIu64 "\n",
              s.leases, s.locks, s.holds, s.waits, s.fences, s.stored_bytes);
}

bool player_line(struct player *p, const struct script_line *line, struct text *output)
{
    if (!client_find(p, line, line->client, &p->speaker)) {
        return false;
    }
    switch (line->action) {
    case SCRIPT_COMMAND:
    case SCRIPT_REPEAT:
        return run_command(p, line, output);
    case SCRIPT_SNAPSHOT:
        return run_snapshot(p, line, output);
    case SCRIPT_DEADLINE:
        print_deadline(p, output);
        return true;
    case SCRIPT_STATS:
        print_stats(p, output);
        return true;
    case SCRIPT_VERSION:
        text_addf(output, "cluster version %" PRIu32 "%s\n",
                  pk_machine_version(p->machine),
                  pk_machine_version_is_held(p->machine) ? ", held" : "");
        return true;
    case SCRIPT_INTERLEAVE:
        break;
    }
    return wrong(p, line->number, "can't be played here", line->text);
}

bool player_block(struct player *p, const struct script *s, const struct script_block *b,
                  struct text *output)
{
    if (s->lines[b->first_line].action == SCRIPT_INTERLEAVE) {
        return player_interleave(p, s, b, output);
    }
    for (uint32_t i = 0; i < b->n_lines; i++) {
        if (!player_line(p, &s->lines[b->first_line + i], output)) {
            return false;
        }
    }
    if (output->len == 0) {
        text_addf(output, "nothing happens\n");
    }
    return true;
}
