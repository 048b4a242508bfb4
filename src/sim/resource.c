/* SPDX-License-Identifier: MIT */
/* What the lock protects: a counter, read and then written by whoever believes. */
#include "core/fencing.h"
#include "sim/inside.h"

/* What becomes of a call. */
enum { DONE, REFUSED, TOO_LATE };

/* What the fence says to a token, and raises it. A store without tokens can't be fenced:
 * everything passes. */
static bool fenced_off(struct pk_world *w, uint64_t token)
{
    if (w->config.fence == PK_PROTECT_OFF || token == 0) {
        return false;
    }
    enum pk_fencing says = pk_fencing(w->fence, token);
    bool last_wins = (w->config.mistakes & PK_MISTAKE_FENCE_LAST) != 0;
    if (says == PK_FENCING_RAISE || (says == PK_FENCING_STALE && last_wins)) {
        w->fence = token;
        pk_note(w, PK_REC_RAISED, PK_WHO_RESOURCE, token, 0);
        return false;
    }
    return says == PK_FENCING_STALE;
}

static void answer(struct pk_world *w, const struct pk_message *m, enum pk_word word,
                   uint64_t value)
{
    pk_send(w, (struct pk_message){.word = (uint8_t)word,
                                   .from = PK_WHO_RESOURCE,
                                   .to = m->from,
                                   .section = m->section,
                                   .token = m->token,
                                   .request = m->request,
                                   .value = value});
}

static void note(struct pk_world *w, enum pk_record_kind kind, const struct pk_message *m,
                 uint8_t outcome, uint64_t value)
{
    pk_emit(w, (struct pk_record){.kind = (uint8_t)kind,
                                  .who = m->from,
                                  .peer = PK_WHO_RESOURCE,
                                  .code = outcome,
                                  .section = m->section,
                                  .token = m->token,
                                  .arg = value});
}

static void hear_read(struct pk_world *w, const struct pk_message *m)
{
    bool refused = w->config.fence == PK_PROTECT_CLAIM && fenced_off(w, m->token);
    if (m->request > w->last_write[m->from]) {
        /* It has given up that write; should it come yet, it comes too late. */
        w->last_write[m->from] = m->request;
    }
    note(w, PK_REC_READ, m, refused ? REFUSED : DONE, w->counter);
    w->rejected += refused;
    answer(w, m, refused ? PK_WORD_STALE : PK_WORD_VALUE, w->counter);
}

static void hear_write(struct pk_world *w, const struct pk_message *m)
{
    if (m->request <= w->last_write[m->from]) {
        /* Writes of one client are in its own order (P8); nobody waits for an answer. */
        note(w, PK_REC_WROTE, m, TOO_LATE, m->value);
        return;
    }
    bool refused = fenced_off(w, m->token);
    note(w, PK_REC_WROTE, m, refused ? REFUSED : DONE, m->value);
    w->last_write[m->from] = m->request;
    w->accepted += !refused;
    w->rejected += refused;
    w->counter = refused ? w->counter : m->value;
    answer(w, m, refused ? PK_WORD_STALE : PK_WORD_WRITTEN, m->value);
}

void pk_resource_hear(struct pk_world *w, const struct pk_message *m)
{
    if (m->word == PK_WORD_READ) {
        hear_read(w, m);
    } else {
        hear_write(w, m);
    }
}
