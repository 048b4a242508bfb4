/* SPDX-License-Identifier: MIT */
#include "raft/message.h"

#include <string.h>

#include "core/door.h"
#include "core/wire.h"
#include "raft/crc32c.h"
#include "raft/store.h"

enum {
    WORD = 8,
    AT_TYPE = 0,
    AT_VERSION = 1,
    AT_THEIR_VERSION = 2,
    AT_ZERO = 3,
    AT_HEADER = 4,
    AT_PAYLOAD = 8,
    AT_CRC = 16,
    /* Lengths of headers. */
    APPEND_FIXED = 5 * WORD,
    APPEND_ENTRY = 2 * WORD,
    APPEND_RESULT = 5 * WORD,
    VOTE = 6 * WORD,
    VOTE_RESULT = 3 * WORD,
    SNAPSHOT_FIXED = 5 * WORD,
    TIMEOUT_NOW = 4 * WORD,
    NOTE_FIXED = WORD,
    CHUNK = 6 * WORD,
    /* Memory is taken for so many bytes at first, then for twice as many as came. */
    FIRST_HEADER = 1024,
    FIRST_PAYLOAD = 1024 * 1024,
    HEADER_KEPT = 16 * 1024,  /* between two messages */
    WORTH_A_READ = 16 * 1024, /* less is cheaper to copy */
    /* Flags of votes. */
    DISRUPT_LEADER = 1,
    PRE_VOTE = 2,
    GRANTED = 1,
};

static const char too_long[] = "a message is longer than any node would send";
static const char broken[] = "a message contradicts itself";
static const char no_memory[] = "there is no memory for a message";

static void put_u32(unsigned char *out, uint32_t v)
{
    for (unsigned i = 0; i < 4; i++) {
        out[i] = (unsigned char)(v >> 8 * i);
    }
}

static uint32_t get_u32(const unsigned char *in)
{
    return in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

static uint64_t word_at(const unsigned char *header, unsigned nth)
{
    return pk_get_u64(header + (size_t)WORD * nth);
}

/* ---- writing ---- */

/* A block for `n` parts, with `header` bytes of header; *at is where those begin. */
static struct pk_encoded *new_encoded(unsigned n, size_t header, unsigned char **at)
{
    size_t parts = sizeof(struct pk_encoded) + n * sizeof(uv_buf_t);
    size_t len = PK_MESSAGE_FRAME + header;
    struct pk_encoded *e = pk_door_resize(NULL, parts + len);
    unsigned char *frame = (unsigned char *)e + parts;
    memset(frame, 0, len);
    put_u32(frame + AT_HEADER, (uint32_t)header);
    e->payload = 0;
    e->n = n;
    e->parts[0] = uv_buf_init((char *)frame, (unsigned)len);
    *at = frame + PK_MESSAGE_FRAME;
    return e;
}

/* The rest of the frame, when header and parts are complete. */
static struct pk_encoded *seal(struct pk_encoded *e, unsigned type, unsigned version)
{
    unsigned char *frame = (unsigned char *)e->parts[0].base;
    for (unsigned i = 1; i < e->n; i++) {
        e->payload += e->parts[i].len;
    }
    frame[AT_TYPE] = (unsigned char)type;
    frame[AT_VERSION] = PK_MESSAGE_VERSION;
    frame[AT_THEIR_VERSION] = (unsigned char)version;
    pk_put_u64(frame + AT_PAYLOAD, e->payload);
    uint32_t crc = pk_crc32c(0, frame, AT_CRC);
    crc = pk_crc32c(crc, frame + PK_MESSAGE_FRAME, e->parts[0].len - PK_MESSAGE_FRAME);
    put_u32(frame + AT_CRC, crc);
    return e;
}

static struct pk_encoded *encode_words(const uint64_t *words, unsigned n, unsigned type,
                                       unsigned version)
{
    unsigned char *at;
    struct pk_encoded *e = new_encoded(1, (size_t)WORD * n, &at);
    for (unsigned i = 0; i < n; i++) {
        pk_put_u64(at + (size_t)WORD * i, words[i]);
    }
    return seal(e, type, version);
}

/* How many entries one message can have. */
static unsigned entries_that_fit(const struct raft_append_entries *a)
{
    const unsigned most = (PK_MESSAGE_HEADER_MAX - APPEND_FIXED) / APPEND_ENTRY;
    uint64_t sum = 0;
    unsigned n = 0;
    while (n < a->n_entries && n < most) {
        sum += a->entries[n].buf.len;
        if (sum > PK_MESSAGE_ENTRIES_MAX || (n > 0 && sum > PK_MESSAGE_ENTRIES_SENT)) {
            break;
        }
        n++;
    }
    return n;
}

static struct pk_encoded *encode_append(const struct raft_append_entries *a,
                                        uint64_t from)
{
    const uint64_t words[] = {from, a->term, a->prev_log_index, a->prev_log_term,
                              a->leader_commit};
    unsigned char *at;
    unsigned n = entries_that_fit(a);
    if (n == 0 && a->n_entries > 0) {
        return NULL;
    }
    struct pk_encoded *e =
        new_encoded(1 + n, APPEND_FIXED + (size_t)APPEND_ENTRY * n, &at);
    for (unsigned i = 0; i < APPEND_FIXED / WORD; i++, at += WORD) {
        pk_put_u64(at, words[i]);
    }
    for (unsigned i = 0; i < n; i++, at += APPEND_ENTRY) {
        const struct raft_entry *entry = &a->entries[i];
        pk_put_u64(at, entry->term);
        pk_put_u64(at + WORD, (uint64_t)entry->type | (uint64_t)entry->buf.len << 32);
        e->parts[1 + i] = (uv_buf_t){.base = entry->buf.base, .len = entry->buf.len};
    }
    return seal(e, RAFT_APPEND_ENTRIES, a->version);
}

static struct pk_encoded *encode_snapshot(const struct raft_install_snapshot *s,
                                          uint64_t from)
{
    const uint64_t words[] = {from, s->term, s->last_index, s->last_term, s->conf_index};
    unsigned char *at;
    struct raft_buffer conf;
    if (s->data.len == 0 || s->data.len > PK_MESSAGE_SNAPSHOT_MAX ||
        raft_configuration_encode(&s->conf, &conf) != 0) {
        return NULL;
    }
    if (conf.len > PK_MESSAGE_CONFIGURATION_MAX) {
        raft_free(conf.base);
        return NULL;
    }
    struct pk_encoded *e = new_encoded(2, SNAPSHOT_FIXED + conf.len, &at);
    for (unsigned i = 0; i < SNAPSHOT_FIXED / WORD; i++, at += WORD) {
        pk_put_u64(at, words[i]);
    }
    memcpy(at, conf.base, conf.len);
    raft_free(conf.base);
    e->parts[1] = (uv_buf_t){.base = s->data.base, .len = s->data.len};
    return seal(e, RAFT_INSTALL_SNAPSHOT, s->version);
}

static struct pk_encoded *encode_append_result(const struct raft_append_entries_result *p,
                                               uint64_t from)
{
    const uint64_t words[] = {from, p->term, p->rejected, p->last_log_index,
                              p->features | (uint64_t)p->capacity << 16};
    return encode_words(words, APPEND_RESULT / WORD, RAFT_APPEND_ENTRIES_RESULT,
                        p->version);
}

static struct pk_encoded *encode_vote(const struct raft_request_vote *p, uint64_t from)
{
    uint64_t flags =
        (p->disrupt_leader ? DISRUPT_LEADER : 0U) | (p->pre_vote ? PRE_VOTE : 0U);
    const uint64_t words[] = {
        from, p->term, p->candidate_id, p->last_log_index, p->last_log_term, flags};
    return encode_words(words, VOTE / WORD, RAFT_REQUEST_VOTE, p->version);
}

static struct pk_encoded *encode_vote_result(const struct raft_request_vote_result *p,
                                             uint64_t from)
{
    uint64_t flags = (p->vote_granted ? GRANTED : 0U) | (p->pre_vote ? PRE_VOTE : 0U);
    const uint64_t words[] = {
        from, p->term, flags | (uint64_t)p->features << 16 | (uint64_t)p->capacity << 32};
    return encode_words(words, VOTE_RESULT / WORD, RAFT_REQUEST_VOTE_RESULT, p->version);
}

static struct pk_encoded *encode_timeout_now(const struct raft_timeout_now *p,
                                             uint64_t from)
{
    const uint64_t words[] = {from, p->term, p->last_log_index, p->last_log_term};
    return encode_words(words, TIMEOUT_NOW / WORD, RAFT_TIMEOUT_NOW, p->version);
}

struct pk_encoded *pk_message_encode(const struct raft_message *m, uint64_t from)
{
    switch (m->type) {
    case RAFT_APPEND_ENTRIES:
        return encode_append(&m->append_entries, from);
    case RAFT_APPEND_ENTRIES_RESULT:
        return encode_append_result(&m->append_entries_result, from);
    case RAFT_REQUEST_VOTE:
        return encode_vote(&m->request_vote, from);
    case RAFT_REQUEST_VOTE_RESULT:
        return encode_vote_result(&m->request_vote_result, from);
    case RAFT_INSTALL_SNAPSHOT:
        return encode_snapshot(&m->install_snapshot, from);
    case RAFT_TIMEOUT_NOW:
        return encode_timeout_now(&m->timeout_now, from);
    default:
        return NULL;
    }
}

struct pk_encoded *pk_note_encode(const void *bytes, size_t len, uint64_t from)
{
    unsigned char *at;
    PK_ASSERT(len <= PK_NOTE_MAX);
    struct pk_encoded *e = new_encoded(1, NOTE_FIXED + len, &at);
    pk_put_u64(at, from);
    if (len > 0) {
        memcpy(at + NOTE_FIXED, bytes, len);
    }
    return seal(e, PK_MESSAGE_NOTE, 0);
}

/* Frame, header and bytes in one part. */
struct pk_encoded *pk_chunk_encode(const struct pk_snapshot_chunk *c, uint64_t from)
{
    PK_ASSERT(c->len <= PK_STORE_CHUNK_MAX);
    uint32_t sum = c->len == 0 ? 0 : pk_crc32c(0, c->bytes, c->len);
    const uint64_t words[] = {
        from,     c->id.index, c->id.term, c->id.size, c->id.sum | (uint64_t)sum << 32,
        c->offset};
    size_t parts = sizeof(struct pk_encoded) + 2 * sizeof(uv_buf_t);
    size_t head = PK_MESSAGE_FRAME + CHUNK;
    struct pk_encoded *e = pk_door_resize(NULL, parts + head + c->len);
    unsigned char *frame = (unsigned char *)e + parts;
    memset(frame, 0, head);
    put_u32(frame + AT_HEADER, CHUNK);
    for (unsigned i = 0; i < CHUNK / WORD; i++) {
        pk_put_u64(frame + PK_MESSAGE_FRAME + (size_t)WORD * i, words[i]);
    }
    e->payload = 0;
    e->n = c->len == 0 ? 1 : 2;
    e->parts[0] = uv_buf_init((char *)frame, (unsigned)head);
    e->parts[1] = uv_buf_init((char *)frame + head, (unsigned)c->len);
    if (c->len > 0) {
        memcpy(frame + head, c->bytes, c->len);
    }
    return seal(e, PK_MESSAGE_CHUNK, 0);
}

/* ---- frames ---- */

struct bounds {
    uint64_t least, most; /* of the header */
    uint64_t payload;     /* at most */
};

static const struct bounds bounds_of[] = {
    [RAFT_APPEND_ENTRIES] = {APPEND_FIXED, PK_MESSAGE_HEADER_MAX, PK_MESSAGE_ENTRIES_MAX},
    [RAFT_APPEND_ENTRIES_RESULT] = {APPEND_RESULT, APPEND_RESULT, 0},
    [RAFT_REQUEST_VOTE] = {VOTE, VOTE, 0},
    [RAFT_REQUEST_VOTE_RESULT] = {VOTE_RESULT, VOTE_RESULT, 0},
    [RAFT_INSTALL_SNAPSHOT] = {SNAPSHOT_FIXED + WORD,
                               SNAPSHOT_FIXED + PK_MESSAGE_CONFIGURATION_MAX,
                               PK_MESSAGE_SNAPSHOT_MAX},
    [RAFT_TIMEOUT_NOW] = {TIMEOUT_NOW, TIMEOUT_NOW, 0},
    [PK_MESSAGE_NOTE] = {NOTE_FIXED, NOTE_FIXED + PK_NOTE_MAX, 0},
    [PK_MESSAGE_CHUNK] = {CHUNK, CHUNK, PK_STORE_CHUNK_MAX},
};

/* The frame is complete. NULL, or what is wrong with it. */
static const char *check_frame(struct pk_message_reader *r)
{
    unsigned type = r->frame[AT_TYPE];
    uint64_t header = get_u32(r->frame + AT_HEADER);
    uint64_t payload = pk_get_u64(r->frame + AT_PAYLOAD);
    if (r->frame[AT_VERSION] != PK_MESSAGE_VERSION || r->frame[AT_ZERO] != 0) {
        return "a message is of another version";
    }
    if (type < RAFT_APPEND_ENTRIES || type > PK_MESSAGE_CHUNK) {
        return "a message is of no known type";
    }
    const struct bounds *b = &bounds_of[type];
    if (header > b->most || payload > b->payload) {
        return too_long;
    }
    if (header < b->least || (type == RAFT_INSTALL_SNAPSHOT && payload == 0)) {
        return broken;
    }
    r->header_len = (size_t)header;
    r->payload_len = (size_t)payload;
    return NULL;
}

static bool is_undamaged(const struct pk_message_reader *r)
{
    uint32_t crc = pk_crc32c(0, r->frame, AT_CRC);
    return pk_crc32c(crc, r->header, r->header_len) == get_u32(r->frame + AT_CRC);
}

/* ---- the configuration inside a snapshot's header ---- */

/* One server: id, address with its NUL, role. */
static bool read_server(struct pk_reader *r, uint64_t *id, const char **address)
{
    const unsigned char *number = pk_read_raw(r, WORD);
    size_t left = (size_t)(r->end - r->at);
    const unsigned char *nul = r->bad ? NULL : memchr(r->at, '\0', left);
    if (number == NULL || nul == NULL) {
        return false;
    }
    *id = pk_get_u64(number);
    *address = (const char *)pk_read_raw(r, (size_t)(nul - r->at) + 1);
    unsigned role = pk_read_byte(r);
    return !r->bad && *id != 0 && role <= RAFT_SPARE;
}

/* The library reads it without looking for the end, and frees it twice when it finds a
 * server in it twice. */
static bool is_configuration(const unsigned char *in, size_t len)
{
    uint64_t ids[PK_MESSAGE_MEMBERS_MAX];
    const char *addresses[PK_MESSAGE_MEMBERS_MAX];
    struct pk_reader r = {.at = in, .end = in + len};
    unsigned format = pk_read_byte(&r);
    const unsigned char *word = pk_read_raw(&r, WORD);
    uint64_t n = word == NULL ? UINT64_MAX : pk_get_u64(word);
    if (format != 1 || n == 0 || n > PK_MESSAGE_MEMBERS_MAX) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (!read_server(&r, &ids[i], &addresses[i])) {
            return false;
        }
        for (size_t j = 0; j < i; j++) {
            if (ids[i] == ids[j] || strcmp(addresses[i], addresses[j]) == 0) {
                return false;
            }
        }
    }
    return true;
}

/* ---- headers ---- */

static const char *read_entry(const unsigned char *at, struct raft_entry *out)
{
    uint64_t second = pk_get_u64(at + WORD);
    unsigned type = (unsigned)(second & 0xffffffff);
    size_t len = (size_t)(second >> 32);
    /* A batch of nothing but empty entries would leave the library without a buffer. */
    if (type < RAFT_COMMAND || type > RAFT_CHANGE || len == 0 || len % WORD != 0) {
        return broken;
    }
    *out = (struct raft_entry){
        .term = pk_get_u64(at), .type = (enum raft_entry_type)type, .buf = {.len = len}};
    return NULL;
}

static const char *read_append(struct pk_message_reader *r)
{
    const unsigned char *h = r->header;
    size_t table = r->header_len - APPEND_FIXED;
    struct raft_append_entries *a = &r->message.append_entries;
    *a = (struct raft_append_entries){.version = r->frame[AT_THEIR_VERSION],
                                      .term = word_at(h, 1),
                                      .prev_log_index = word_at(h, 2),
                                      .prev_log_term = word_at(h, 3),
                                      .leader_commit = word_at(h, 4)};
    if (table % APPEND_ENTRY != 0) {
        return broken;
    }
    unsigned n = (unsigned)(table / APPEND_ENTRY);
    uint64_t sum = 0;
    if (n > 0) {
        a->entries = raft_malloc(n * sizeof *a->entries);
        if (a->entries == NULL) {
            return no_memory;
        }
        r->owns_message = true;
    }
    for (; a->n_entries < n; a->n_entries++) {
        const unsigned char *at = h + APPEND_FIXED + (size_t)APPEND_ENTRY * a->n_entries;
        const char *why = read_entry(at, &a->entries[a->n_entries]);
        if (why != NULL) {
            return why;
        }
        sum += a->entries[a->n_entries].buf.len;
    }
    return sum == r->payload_len ? NULL : broken;
}

static const char *read_snapshot(struct pk_message_reader *r)
{
    const unsigned char *h = r->header;
    struct raft_install_snapshot *s = &r->message.install_snapshot;
    struct raft_buffer conf = {.base = r->header + SNAPSHOT_FIXED,
                               .len = r->header_len - SNAPSHOT_FIXED};
    *s = (struct raft_install_snapshot){.version = r->frame[AT_THEIR_VERSION],
                                        .term = word_at(h, 1),
                                        .last_index = word_at(h, 2),
                                        .last_term = word_at(h, 3),
                                        .conf_index = word_at(h, 4)};
    if (!is_configuration(conf.base, conf.len)) {
        return broken;
    }
    raft_configuration_init(&s->conf);
    if (raft_configuration_decode(&conf, &s->conf) != 0) {
        return no_memory;
    }
    r->owns_message = true;
    return NULL;
}

static const char *read_chunk(struct pk_message_reader *r)
{
    const unsigned char *h = r->header;
    uint64_t sums = word_at(h, 4);
    r->chunk = (struct pk_snapshot_chunk){.id = {.index = word_at(h, 1),
                                                 .term = word_at(h, 2),
                                                 .size = word_at(h, 3),
                                                 .sum = (uint32_t)sums},
                                          .offset = word_at(h, 5),
                                          .len = r->payload_len};
    r->chunk_sum = (uint32_t)(sums >> 32);
    uint64_t size = r->chunk.id.size;
    return r->chunk.offset <= size && r->chunk.len <= size - r->chunk.offset ? NULL
                                                                             : broken;
}

static const char *read_votes(struct pk_message_reader *r)
{
    const unsigned char *h = r->header;
    unsigned version = r->frame[AT_THEIR_VERSION];
    if (r->message.type == RAFT_REQUEST_VOTE) {
        uint64_t flags = word_at(h, 5);
        r->message.request_vote =
            (struct raft_request_vote){.version = (unsigned char)version,
                                       .term = word_at(h, 1),
                                       .candidate_id = word_at(h, 2),
                                       .last_log_index = word_at(h, 3),
                                       .last_log_term = word_at(h, 4),
                                       .disrupt_leader = (flags & DISRUPT_LEADER) != 0,
                                       .pre_vote = (flags & PRE_VOTE) != 0};
        return word_at(h, 2) == r->from && flags <= (DISRUPT_LEADER | PRE_VOTE) ? NULL
                                                                                : broken;
    }
    uint64_t word = word_at(h, 2);
    r->message.request_vote_result =
        (struct raft_request_vote_result){.version = (unsigned char)version,
                                          .term = word_at(h, 1),
                                          .vote_granted = (word & GRANTED) != 0,
                                          .pre_vote = (word & PRE_VOTE) != 0,
                                          .features = (unsigned short)(word >> 16),
                                          .capacity = (unsigned short)(word >> 32)};
    return (word & 0xffff) <= (GRANTED | PRE_VOTE) && word >> 48 == 0 ? NULL : broken;
}

static const char *read_others(struct pk_message_reader *r)
{
    const unsigned char *h = r->header;
    unsigned char version = r->frame[AT_THEIR_VERSION];
    if (r->message.type == RAFT_TIMEOUT_NOW) {
        r->message.timeout_now =
            (struct raft_timeout_now){.version = version,
                                      .term = word_at(h, 1),
                                      .last_log_index = word_at(h, 2),
                                      .last_log_term = word_at(h, 3)};
        return NULL;
    }
    uint64_t word = word_at(h, 4);
    r->message.append_entries_result =
        (struct raft_append_entries_result){.version = version,
                                            .term = word_at(h, 1),
                                            .rejected = word_at(h, 2),
                                            .last_log_index = word_at(h, 3),
                                            .features = (unsigned short)word,
                                            .capacity = (unsigned short)(word >> 16)};
    return word >> 32 == 0 ? NULL : broken;
}

/* The header is complete. NULL, or what is wrong with it. */
static const char *check_header(struct pk_message_reader *r)
{
    if (!is_undamaged(r)) {
        return "a message was damaged on its way";
    }
    memset(&r->message, 0, sizeof r->message);
    r->from = word_at(r->header, 0);
    r->message.server_id = r->from;
    switch (r->frame[AT_TYPE]) {
    case PK_MESSAGE_NOTE:
        r->note = r->header + NOTE_FIXED;
        r->note_len = r->header_len - NOTE_FIXED;
        return NULL;
    case PK_MESSAGE_CHUNK:
        return read_chunk(r);
    case RAFT_APPEND_ENTRIES:
        r->message.type = RAFT_APPEND_ENTRIES;
        return read_append(r);
    case RAFT_INSTALL_SNAPSHOT:
        r->message.type = RAFT_INSTALL_SNAPSHOT;
        return read_snapshot(r);
    case RAFT_REQUEST_VOTE:
    case RAFT_REQUEST_VOTE_RESULT:
        r->message.type = (enum raft_message_type)r->frame[AT_TYPE];
        return read_votes(r);
    default:
        r->message.type = (enum raft_message_type)r->frame[AT_TYPE];
        return read_others(r);
    }
}

/* ---- the stream ---- */

static void free_message(struct pk_message_reader *r)
{
    if (!r->owns_message) {
        return;
    }
    if (r->message.type == RAFT_APPEND_ENTRIES) {
        raft_free(r->message.append_entries.entries);
    } else {
        raft_configuration_close(&r->message.install_snapshot.conf);
    }
    r->owns_message = false;
}

static enum pk_message_state refuse(struct pk_message_reader *r, const char *why)
{
    pk_message_reader_free(r);
    r->why = why;
    return PK_MESSAGE_WRONG;
}

/* All of it is there. */
static enum pk_message_state finish(struct pk_message_reader *r)
{
    r->in = PK_IN_FRAME;
    r->have = 0;
    if (r->frame[AT_TYPE] == PK_MESSAGE_NOTE) {
        return PK_MESSAGE_NOTED;
    }
    if (r->frame[AT_TYPE] == PK_MESSAGE_CHUNK) {
        r->chunk.bytes = r->payload;
        bool good = r->payload_len == 0 ||
                    pk_crc32c(0, r->payload, r->payload_len) == r->chunk_sum;
        return good ? PK_MESSAGE_CHUNKED
                    : refuse(r, "a chunk of a snapshot was damaged on its way");
    }
    if (r->message.type == RAFT_APPEND_ENTRIES) {
        struct raft_append_entries *a = &r->message.append_entries;
        unsigned char *at = r->payload;
        for (unsigned i = 0; i < a->n_entries; i++) {
            a->entries[i].buf.base = at;
            a->entries[i].batch = r->payload;
            at += a->entries[i].buf.len;
        }
    } else if (r->message.type == RAFT_INSTALL_SNAPSHOT) {
        r->message.install_snapshot.data =
            (struct raft_buffer){.base = r->payload, .len = r->payload_len};
    }
    return PK_MESSAGE_WHOLE;
}

enum pk_message_state pk_message_came(struct pk_message_reader *r, size_t n)
{
    const char *why = NULL;
    r->have += n;
    if (r->in == PK_IN_FRAME && r->have == PK_MESSAGE_FRAME) {
        why = check_frame(r);
        r->in = PK_IN_HEADER;
        r->have = 0;
    } else if (r->in == PK_IN_HEADER && r->have == r->header_len) {
        why = check_header(r);
        r->in = PK_IN_PAYLOAD;
        r->have = 0;
    }
    if (why != NULL) {
        return refuse(r, why);
    }
    return r->in == PK_IN_PAYLOAD && r->have == r->payload_len ? finish(r)
                                                               : PK_MESSAGE_PART;
}

/* Twice as much as came, but not more than there will be. */
static size_t next_size(size_t room, size_t first, size_t all)
{
    size_t wanted = room == 0 ? first : 2 * room;
    return wanted < all ? wanted : all;
}

static unsigned char *header_room(struct pk_message_reader *r, size_t *len)
{
    if (r->have >= r->header_room) {
        /* What was kept from an earlier message may be more than this one needs. */
        r->header_room = next_size(r->header_room, FIRST_HEADER, r->header_len);
        r->header = pk_door_resize(r->header, r->header_room);
    }
    size_t end = r->header_room < r->header_len ? r->header_room : r->header_len;
    *len = end - r->have;
    return r->header + r->have;
}

static unsigned char *payload_room(struct pk_message_reader *r, size_t *len)
{
    if (r->have == r->payload_room) {
        size_t room = next_size(r->payload_room, FIRST_PAYLOAD, r->payload_len);
        unsigned char *larger = raft_realloc(r->payload, room);
        if (larger == NULL) {
            return NULL;
        }
        r->payload = larger;
        r->payload_room = room;
    }
    *len = r->payload_room - r->have;
    return r->payload + r->have;
}

/* Where the next bytes go; NULL: there is no memory. */
static unsigned char *next_room(struct pk_message_reader *r, size_t *len)
{
    switch (r->in) {
    case PK_IN_HEADER:
        return header_room(r, len);
    case PK_IN_PAYLOAD:
        return payload_room(r, len);
    default:
        *len = PK_MESSAGE_FRAME - r->have;
        return r->frame + r->have;
    }
}

unsigned char *pk_message_room(struct pk_message_reader *r, size_t *len)
{
    bool worth = r->in == PK_IN_PAYLOAD && r->payload_len - r->have >= WORTH_A_READ;
    return worth ? payload_room(r, len) : NULL;
}

/* Frees what was not taken, and a header that is too large to keep. */
static void begin_again(struct pk_message_reader *r)
{
    free_message(r);
    raft_free(r->payload);
    r->payload = NULL;
    r->payload_room = 0;
    if (r->header_room > HEADER_KEPT) {
        r->header = pk_door_resize(r->header, 0);
        r->header_room = 0;
    }
}

enum pk_message_state pk_message_read(struct pk_message_reader *r,
                                      const unsigned char *in, size_t len, size_t *used)
{
    enum pk_message_state state = PK_MESSAGE_PART;
    *used = 0;
    if (r->in == PK_IN_FRAME && r->have == 0) {
        begin_again(r);
    }
    while (state == PK_MESSAGE_PART && *used < len) {
        size_t room;
        unsigned char *to = next_room(r, &room);
        if (to == NULL) {
            return refuse(r, no_memory);
        }
        size_t n = len - *used < room ? len - *used : room;
        memcpy(to, in + *used, n);
        *used += n;
        state = pk_message_came(r, n);
    }
    return state;
}

void pk_message_take(struct pk_message_reader *r, struct raft_message *out)
{
    PK_ASSERT(r->in == PK_IN_FRAME && r->have == 0);
    *out = r->message;
    r->owns_message = false;
    r->payload = NULL;
    r->payload_room = 0;
}

void pk_message_drop(struct raft_message *m)
{
    if (m->type == RAFT_APPEND_ENTRIES && m->append_entries.n_entries > 0) {
        raft_free(m->append_entries.entries[0].batch);
        raft_free(m->append_entries.entries);
    } else if (m->type == RAFT_INSTALL_SNAPSHOT) {
        raft_configuration_close(&m->install_snapshot.conf);
        raft_free(m->install_snapshot.data.base);
    }
}

void pk_message_reader_free(struct pk_message_reader *r)
{
    free_message(r);
    raft_free(r->payload);
    pk_door_resize(r->header, 0);
    memset(r, 0, sizeof *r);
}
