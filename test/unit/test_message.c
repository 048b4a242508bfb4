/* SPDX-License-Identifier: MIT */
/* Messages between nodes: what is written is read again, in whatever pieces it comes;
 * what nobody wrote is refused, and takes no memory. */
#include "raft/message.h"

#include <stdlib.h>

#include "core/door.h"
#include "core/wire.h"
#include "raft/crc32c.h"
#include "tap.h"

enum { FROM = 77, AT_HEADER = 4, AT_PAYLOAD = 8, AT_CRC = 16, MOST = 1 << 20 };

static unsigned char bytes[2 * MOST];
static size_t len;

/* ---- memory, counted ---- */

static size_t taken;     /* bytes that raft_malloc has given, once freed too */
static size_t refuse_at; /* no memory for more than so many at once; 0: for any */
static unsigned blocks;  /* not freed yet */

static void *give(size_t size)
{
    if (refuse_at != 0 && size > refuse_at) {
        return NULL;
    }
    taken += size;
    blocks++;
    return malloc(size);
}

static void *heap_malloc(void *data, size_t size)
{
    (void)data;
    return give(size);
}

static void heap_free(void *data, void *p)
{
    (void)data;
    blocks -= p != NULL;
    free(p);
}

static void *heap_calloc(void *data, size_t n, size_t size)
{
    (void)data;
    void *p = give(n * size);
    return p == NULL ? NULL : memset(p, 0, n * size);
}

static void *heap_realloc(void *data, void *p, size_t size)
{
    if (p == NULL) {
        return heap_malloc(data, size);
    }
    taken += size;
    return realloc(p, size);
}

static void *heap_aligned(void *data, size_t alignment, size_t size)
{
    (void)data;
    (void)alignment;
    return give(size);
}

static void heap_aligned_free(void *data, size_t alignment, void *p)
{
    (void)alignment;
    heap_free(data, p);
}

static struct raft_heap counted = {.malloc = heap_malloc,
                                   .free = heap_free,
                                   .calloc = heap_calloc,
                                   .realloc = heap_realloc,
                                   .aligned_alloc = heap_aligned,
                                   .aligned_free = heap_aligned_free};

static void count_memory(void)
{
    raft_heap_set(&counted);
    taken = 0;
    blocks = 0;
    refuse_at = 0;
}

/* ---- messages to play with ---- */

static unsigned char entry_bytes[3][64];
static struct raft_entry entries[3];
static struct raft_configuration conf;
static unsigned char data[100000];

static struct raft_message append_of(unsigned n)
{
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES};
    m.append_entries = (struct raft_append_entries){.version = 3,
                                                    .term = 5,
                                                    .prev_log_index = 6,
                                                    .prev_log_term = 4,
                                                    .leader_commit = UINT64_MAX,
                                                    .entries = n == 0 ? NULL : entries,
                                                    .n_entries = n};
    for (unsigned i = 0; i < n; i++) {
        size_t size = 8 * (size_t)(i + 1);
        memset(entry_bytes[i], 'a' + (int)i, size);
        entries[i] = (struct raft_entry){.term = 5 + i,
                                         .type = (enum raft_entry_type)(i + 1),
                                         .buf = {entry_bytes[i], size}};
    }
    return m;
}

static struct raft_message snapshot_of(size_t size)
{
    struct raft_message m = {.type = RAFT_INSTALL_SNAPSHOT};
    raft_configuration_init(&conf);
    CHECK(raft_configuration_add(&conf, 11, "n1@a:1", RAFT_VOTER) == 0);
    CHECK(raft_configuration_add(&conf, 12, "n2@b:2", RAFT_SPARE) == 0);
    for (size_t i = 0; i < size; i++) {
        data[i] = (unsigned char)(i * 31);
    }
    m.install_snapshot = (struct raft_install_snapshot){.version = 1,
                                                        .term = 9,
                                                        .last_index = 8,
                                                        .last_term = 7,
                                                        .conf = conf,
                                                        .conf_index = 6,
                                                        .data = {data, size}};
    return m;
}

static struct raft_message small_of(enum raft_message_type type)
{
    struct raft_message m = {.type = type};
    switch (type) {
    case RAFT_REQUEST_VOTE:
        m.request_vote = (struct raft_request_vote){2, 10, FROM, 12, 13, false, true};
        break;
    case RAFT_REQUEST_VOTE_RESULT:
        m.request_vote_result =
            (struct raft_request_vote_result){2, 10, true, false, 65535, 4321};
        break;
    case RAFT_APPEND_ENTRIES_RESULT:
        m.append_entries_result =
            (struct raft_append_entries_result){2, 10, 11, 12, 1, 65534};
        break;
    default:
        m.timeout_now = (struct raft_timeout_now){1, 10, 11, 12};
    }
    return m;
}

static void flatten(struct pk_encoded *e)
{
    CHECK(e != NULL);
    len = 0;
    for (unsigned i = 0; i < e->n; i++) {
        CHECK(len + e->parts[i].len <= sizeof bytes);
        memcpy(bytes + len, e->parts[i].base, e->parts[i].len);
        len += e->parts[i].len;
    }
    CHECK_U64(e->payload, len - e->parts[0].len);
    pk_door_resize(e, 0);
}

static void write_message(const struct raft_message *m)
{
    flatten(pk_message_encode(m, FROM));
}

/* The length of the header as the frame has it. */
static size_t header_len(void)
{
    return bytes[AT_HEADER] | (size_t)bytes[AT_HEADER + 1] << 8 |
           (size_t)bytes[AT_HEADER + 2] << 16;
}

static void set_header_len(uint32_t n)
{
    for (unsigned i = 0; i < 4; i++) {
        bytes[AT_HEADER + i] = (unsigned char)(n >> 8 * i);
    }
}

/* The checksum of a message that was changed on purpose. */
static void seal(void)
{
    uint32_t crc = pk_crc32c(0, bytes, AT_CRC);
    crc = pk_crc32c(crc, bytes + PK_MESSAGE_FRAME, header_len());
    for (unsigned i = 0; i < 4; i++) {
        bytes[AT_CRC + i] = (unsigned char)(crc >> 8 * i);
    }
}

/* ---- reading ---- */

static struct pk_message_reader reader;

/* Reads all bytes, in pieces of at most `piece`; stops where a message is complete. */
static enum pk_message_state read_in(size_t piece)
{
    enum pk_message_state state = PK_MESSAGE_PART;
    for (size_t at = 0; at < len && state == PK_MESSAGE_PART;) {
        size_t used, n = len - at < piece ? len - at : piece;
        unsigned char *copy = malloc(n); /* a sanitizer sees a read past it */
        CHECK(copy != NULL);
        memcpy(copy, bytes + at, n);
        state = pk_message_read(&reader, copy, n, &used);
        free(copy);
        CHECK(used <= n && (used == n || state != PK_MESSAGE_PART));
        at += used;
    }
    return state;
}

/* NULL: it is not complete or was taken; else why it was refused. Without a trace. */
static const char *verdict(void)
{
    struct raft_message m;
    enum pk_message_state state = read_in(len);
    const char *why = state == PK_MESSAGE_WRONG ? reader.why : NULL;
    if (state == PK_MESSAGE_WHOLE) {
        pk_message_take(&reader, &m);
        pk_message_drop(&m);
    }
    pk_message_reader_free(&reader);
    return why;
}

static void is_same_append(const struct raft_append_entries *a,
                           const struct raft_append_entries *b)
{
    CHECK_U64(a->version, b->version);
    CHECK_U64(a->term, b->term);
    CHECK_U64(a->prev_log_index, b->prev_log_index);
    CHECK_U64(a->prev_log_term, b->prev_log_term);
    CHECK_U64(a->leader_commit, b->leader_commit);
    CHECK_U64(a->n_entries, b->n_entries);
    for (unsigned i = 0; i < a->n_entries; i++) {
        const struct raft_entry *x = &a->entries[i], *y = &b->entries[i];
        CHECK_U64(x->term, y->term);
        CHECK(x->type == y->type);
        CHECK_U64(x->buf.len, y->buf.len);
        CHECK(memcmp(x->buf.base, y->buf.base, x->buf.len) == 0);
        CHECK(x->batch == a->entries[0].buf.base); /* one block for all */
    }
}

static void is_same_snapshot(const struct raft_install_snapshot *a,
                             const struct raft_install_snapshot *b)
{
    CHECK_U64(a->version, b->version);
    CHECK_U64(a->term, b->term);
    CHECK_U64(a->last_index, b->last_index);
    CHECK_U64(a->last_term, b->last_term);
    CHECK_U64(a->conf_index, b->conf_index);
    CHECK_U64(a->data.len, b->data.len);
    CHECK(memcmp(a->data.base, b->data.base, a->data.len) == 0);
    CHECK_U64(a->conf.n, b->conf.n);
    for (unsigned i = 0; i < a->conf.n; i++) {
        CHECK_U64(a->conf.servers[i].id, b->conf.servers[i].id);
        CHECK_STR(a->conf.servers[i].address, b->conf.servers[i].address);
        CHECK(a->conf.servers[i].role == b->conf.servers[i].role);
    }
}

static void is_same_small(const struct raft_message *a, const struct raft_message *b)
{
    const struct raft_request_vote *v = &a->request_vote, *w = &b->request_vote;
    const struct raft_request_vote_result *r = &a->request_vote_result,
                                          *s = &b->request_vote_result;
    const struct raft_append_entries_result *t = &a->append_entries_result,
                                            *u = &b->append_entries_result;
    const struct raft_timeout_now *x = &a->timeout_now, *y = &b->timeout_now;
    switch (b->type) {
    case RAFT_REQUEST_VOTE:
        CHECK(v->version == w->version && v->term == w->term &&
              v->candidate_id == w->candidate_id &&
              v->last_log_index == w->last_log_index &&
              v->last_log_term == w->last_log_term &&
              v->disrupt_leader == w->disrupt_leader && v->pre_vote == w->pre_vote);
        break;
    case RAFT_REQUEST_VOTE_RESULT:
        CHECK(r->version == s->version && r->term == s->term &&
              r->vote_granted == s->vote_granted && r->pre_vote == s->pre_vote &&
              r->features == s->features && r->capacity == s->capacity);
        break;
    case RAFT_APPEND_ENTRIES_RESULT:
        CHECK(t->version == u->version && t->term == u->term &&
              t->rejected == u->rejected && t->last_log_index == u->last_log_index &&
              t->features == u->features && t->capacity == u->capacity);
        break;
    default:
        CHECK(x->version == y->version && x->term == y->term &&
              x->last_log_index == y->last_log_index &&
              x->last_log_term == y->last_log_term);
    }
}

static void comes_through(const struct raft_message *sent, size_t piece)
{
    struct raft_message m;
    write_message(sent);
    count_memory();
    CHECK(read_in(piece) == PK_MESSAGE_WHOLE);
    CHECK_U64(reader.from, FROM);
    pk_message_take(&reader, &m);
    CHECK(m.type == sent->type);
    CHECK_U64(m.server_id, FROM);
    if (m.type == RAFT_APPEND_ENTRIES) {
        is_same_append(&m.append_entries, &sent->append_entries);
    } else if (m.type == RAFT_INSTALL_SNAPSHOT) {
        is_same_snapshot(&m.install_snapshot, &sent->install_snapshot);
    } else {
        is_same_small(&m, sent);
    }
    pk_message_drop(&m);
    pk_message_reader_free(&reader);
    CHECK_U64(blocks, 0);
    raft_heap_set_default();
}

static const enum raft_message_type small_types[] = {
    RAFT_APPEND_ENTRIES_RESULT, RAFT_REQUEST_VOTE, RAFT_REQUEST_VOTE_RESULT,
    RAFT_TIMEOUT_NOW};
enum { SMALL_TYPES = 4 };

TEST(message__what_is_written_is_read_in_any_pieces)
{
    static const size_t pieces[] = {1, 2, 7, 19, 20, 21, 64, 4096, MOST};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        struct raft_message m;
        for (size_t k = 0; k < SMALL_TYPES; k++) {
            m = small_of(small_types[k]);
            comes_through(&m, pieces[i]);
        }
        for (unsigned n = 0; n <= 3; n++) {
            m = append_of(n);
            comes_through(&m, pieces[i]);
        }
        static const size_t sizes[] = {1, 8, 777, PK_MESSAGE_SNAPSHOT_MAX};
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            m = snapshot_of(sizes[k]);
            comes_through(&m, pieces[i]);
            raft_configuration_close(&conf);
        }
    }
}

TEST(message__flags_come_through_one_by_one)
{
    for (unsigned i = 0; i < 4; i++) {
        struct raft_message m = small_of(RAFT_REQUEST_VOTE);
        m.request_vote.disrupt_leader = (i & 1) != 0;
        m.request_vote.pre_vote = (i & 2) != 0;
        comes_through(&m, MOST);
        m = small_of(RAFT_REQUEST_VOTE_RESULT);
        m.request_vote_result.vote_granted = (i & 1) != 0;
        m.request_vote_result.pre_vote = (i & 2) != 0;
        comes_through(&m, MOST);
    }
}

/* Entries and snapshots are written from where they are. */
TEST(message__payloads_are_not_copied)
{
    struct raft_message m = append_of(3);
    struct pk_encoded *e = pk_message_encode(&m, FROM);
    CHECK_U64(e->n, 4);
    for (unsigned i = 0; i < 3; i++) {
        CHECK(e->parts[1 + i].base == (char *)entry_bytes[i]);
        CHECK_U64(e->parts[1 + i].len, entries[i].buf.len);
    }
    pk_door_resize(e, 0);
    m = snapshot_of(1000);
    e = pk_message_encode(&m, FROM);
    CHECK_U64(e->n, 2);
    CHECK(e->parts[1].base == (char *)data);
    pk_door_resize(e, 0);
    raft_configuration_close(&conf);
}

enum { LARGE = sizeof data / 8 * 8 };

/* AppendEntries with one entry. */
static void write_large(void)
{
    static struct raft_entry entry;
    struct raft_message m = append_of(0);
    entry = (struct raft_entry){.term = 1, .type = RAFT_COMMAND, .buf = {data, LARGE}};
    m.append_entries.entries = &entry;
    m.append_entries.n_entries = 1;
    write_message(&m);
}

/* Nor when they are read: a large one goes from the socket to its place. */
TEST(message__large_payloads_are_read_into_their_place)
{
    struct raft_message m;
    size_t used, room;
    write_large();
    CHECK(pk_message_room(&reader, &room) == NULL);
    size_t head = PK_MESSAGE_FRAME + header_len() + 5;
    CHECK(pk_message_read(&reader, bytes, head, &used) == PK_MESSAGE_PART);
    unsigned char *to = pk_message_room(&reader, &room);
    CHECK(to != NULL);
    CHECK_U64(room, LARGE - 5);
    memcpy(to, bytes + head, 80000);
    CHECK(pk_message_came(&reader, 80000) == PK_MESSAGE_PART);
    to = pk_message_room(&reader, &room);
    CHECK(to != NULL);
    memcpy(to, bytes + head + 80000, room);
    CHECK(pk_message_came(&reader, room) == PK_MESSAGE_WHOLE);
    pk_message_take(&reader, &m);
    CHECK(memcmp(m.append_entries.entries[0].buf.base, data, LARGE) == 0);
    pk_message_drop(&m);
    pk_message_reader_free(&reader);
}

TEST(message__several_in_one_piece_are_found)
{
    struct raft_message m = append_of(2);
    write_message(&m);
    size_t first = len;
    memcpy(bytes + MOST, bytes, first);
    m = small_of(RAFT_REQUEST_VOTE);
    write_message(&m);
    memmove(bytes + first, bytes, len);
    memcpy(bytes, bytes + MOST, first);
    len += first;
    size_t used, more;
    CHECK(pk_message_read(&reader, bytes, len, &used) == PK_MESSAGE_WHOLE);
    CHECK_U64(used, first);
    pk_message_take(&reader, &m);
    CHECK_U64(m.append_entries.n_entries, 2);
    pk_message_drop(&m);
    CHECK(pk_message_read(&reader, bytes + used, len - used, &more) == PK_MESSAGE_WHOLE);
    CHECK_U64(used + more, len);
    pk_message_take(&reader, &m);
    CHECK(m.type == RAFT_REQUEST_VOTE);
    pk_message_reader_free(&reader);
}

TEST(message__notes_come_through)
{
    static const size_t sizes[] = {0, 1, 13, PK_NOTE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        memset(data, 'n', sizes[i]);
        flatten(pk_note_encode(data, sizes[i], FROM));
        CHECK(read_in(i == 0 ? MOST : i) == PK_MESSAGE_NOTED);
        CHECK_U64(reader.from, FROM);
        CHECK_U64(reader.note_len, sizes[i]);
        CHECK(memcmp(reader.note, data, sizes[i]) == 0);
        pk_message_reader_free(&reader);
    }
    set_header_len(8 + PK_NOTE_MAX + 1);
    CHECK(verdict() != NULL);
}

/* ---- cut off, damaged, made up ---- */

static struct raft_message nth_message(unsigned i)
{
    return i < SMALL_TYPES ? small_of(small_types[i])
           : i == 4        ? append_of(3)
                           : snapshot_of(40);
}
enum { MESSAGES = 6 };

TEST(message__a_beginning_is_a_part_and_leaves_nothing_behind)
{
    for (unsigned i = 0; i < MESSAGES; i++) {
        struct raft_message m = nth_message(i);
        write_message(&m);
        size_t whole = len;
        for (len = 0; len < whole; len++) {
            count_memory();
            CHECK(read_in(MOST) == PK_MESSAGE_PART);
            pk_message_reader_free(&reader);
            CHECK_U64(blocks, 0);
            raft_heap_set_default();
        }
    }
    raft_configuration_close(&conf);
}

/* A flip of any bit in frame or header is seen, or makes the reader wait for more. */
TEST(message__damage_is_seen)
{
    for (unsigned i = 0; i < MESSAGES; i++) {
        struct raft_message m = nth_message(i);
        write_message(&m);
        size_t head = PK_MESSAGE_FRAME + header_len();
        for (size_t bit = 0; bit < 8 * head; bit++) {
            bytes[bit / 8] ^= (unsigned char)(1U << bit % 8);
            count_memory();
            enum pk_message_state state = read_in(MOST);
            CHECK(state == PK_MESSAGE_WRONG || state == PK_MESSAGE_PART);
            pk_message_reader_free(&reader);
            CHECK_U64(blocks, 0);
            raft_heap_set_default();
            bytes[bit / 8] ^= (unsigned char)(1U << bit % 8);
        }
        CHECK_STR(verdict(), NULL);
    }
    raft_configuration_close(&conf);
}

TEST(message__unknown_types_and_versions_are_refused)
{
    struct raft_message m = small_of(RAFT_TIMEOUT_NOW);
    for (unsigned type = 0; type < 256; type++) {
        write_message(&m);
        bytes[0] = (unsigned char)type;
        seal();
        len = PK_MESSAGE_FRAME; /* at once, without waiting for more */
        bool fits = type == RAFT_TIMEOUT_NOW || type == PK_MESSAGE_NOTE;
        CHECK((verdict() != NULL) == !fits || type == RAFT_APPEND_ENTRIES);
    }
    write_message(&m);
    bytes[1]++;
    seal();
    CHECK_STR(verdict(), "a message is of another version");
    write_message(&m);
    bytes[3]++;
    seal();
    CHECK(verdict() != NULL);
}

/* Only with its frame: nothing is taken before the bounds have been looked at. */
TEST(message__lengths_of_headers_are_bounded)
{
    for (unsigned i = 0; i < MESSAGES; i++) {
        static const uint32_t wrong[] = {0, 8, PK_MESSAGE_HEADER_MAX + 1, UINT32_MAX};
        struct raft_message m = nth_message(i);
        for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
            write_message(&m);
            set_header_len(wrong[k]);
            len = PK_MESSAGE_FRAME;
            CHECK(verdict() != NULL);
        }
        write_message(&m);
        set_header_len((uint32_t)header_len() + 1);
        len = PK_MESSAGE_FRAME;
        CHECK((verdict() == NULL) == (i >= SMALL_TYPES));
    }
    raft_configuration_close(&conf);
}

/* A header that was only announced is no reason to have memory for all of it. */
TEST(message__headers_take_memory_as_they_come)
{
    struct raft_message m = append_of(0);
    write_message(&m);
    set_header_len(PK_MESSAGE_HEADER_MAX);
    CHECK(read_in(MOST) == PK_MESSAGE_PART);
    CHECK(reader.header_room <= 4096);
    pk_message_reader_free(&reader);
}

static void set_payload_len(uint64_t n)
{
    pk_put_u64(bytes + AT_PAYLOAD, n);
    seal();
}

/* Announces AppendEntries with one entry of that size, and sends eight bytes of it. */
static const char *announce_entry(uint64_t size)
{
    struct raft_message m = append_of(1);
    write_message(&m);
    pk_put_u64(bytes + PK_MESSAGE_FRAME + 48, 1 | size << 32);
    set_payload_len(size);
    return verdict();
}

TEST(message__entries_together_are_bounded)
{
    count_memory();
    CHECK_STR(announce_entry(PK_MESSAGE_ENTRIES_MAX), NULL);
    CHECK(taken < 2 * MOST); /* it grows with what comes */
    taken = 0;
    CHECK(announce_entry(PK_MESSAGE_ENTRIES_MAX + 8) != NULL);
    CHECK(announce_entry(0xfffffff8) != NULL);
    CHECK_U64(taken, 0);
    CHECK_U64(blocks, 0);
    raft_heap_set_default();
}

TEST(message__snapshots_are_bounded)
{
    struct raft_message m = snapshot_of(8);
    static const uint64_t wrong[] = {0, PK_MESSAGE_SNAPSHOT_MAX + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        write_message(&m);
        set_payload_len(wrong[i]);
        count_memory();
        CHECK(verdict() != NULL);
        CHECK_U64(taken, 0);
        raft_heap_set_default();
    }
    write_message(&m);
    set_payload_len(PK_MESSAGE_SNAPSHOT_MAX);
    count_memory();
    CHECK_STR(verdict(), NULL);
    CHECK(taken < 2 * MOST);
    raft_heap_set_default();
    raft_configuration_close(&conf);
}

TEST(message__small_messages_have_no_payload)
{
    for (unsigned i = 0; i < SMALL_TYPES; i++) {
        struct raft_message m = small_of(small_types[i]);
        write_message(&m);
        set_payload_len(8);
        len = PK_MESSAGE_FRAME;
        CHECK(verdict() != NULL);
    }
}

TEST(message__without_memory_the_connection_ends)
{
    struct raft_message m = append_of(3);
    write_message(&m);
    count_memory();
    refuse_at = 50;
    CHECK_STR(verdict(), "there is no memory for a message");
    refuse_at = 3 * sizeof(struct raft_entry) - 1;
    CHECK_STR(verdict(), "there is no memory for a message");
    CHECK_U64(blocks, 0);
    raft_heap_set_default();
    write_large();
    count_memory();
    refuse_at = 50000;
    CHECK_STR(verdict(), "there is no memory for a message");
    CHECK_U64(blocks, 0);
    raft_heap_set_default();
}

/* Lengths, types and sums of entries contradict nothing. */
TEST(message__entries_are_of_a_known_type_and_not_empty)
{
    static const uint64_t wrong[] = {
        0 | UINT64_C(8) << 32,  4 | UINT64_C(8) << 32,   1,
        1 | UINT64_C(12) << 32, 257 | UINT64_C(8) << 32, /* bytes that must be 0 */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct raft_message m = append_of(1);
        write_message(&m);
        pk_put_u64(bytes + PK_MESSAGE_FRAME + 48, wrong[i]);
        set_payload_len(wrong[i] >> 32);
        CHECK_STR(verdict(), "a message contradicts itself");
    }
    struct raft_message m = append_of(2);
    write_message(&m);
    set_payload_len(16); /* less than the entries have */
    CHECK(verdict() != NULL);
    set_payload_len(32);
    CHECK(verdict() != NULL);
    set_payload_len(24);
    CHECK_STR(verdict(), NULL);
    m = append_of(0);
    write_message(&m);
    set_payload_len(8); /* of no entry */
    CHECK(verdict() != NULL);
    m = append_of(1);
    write_message(&m);
    set_header_len(48); /* half an entry */
    set_payload_len(0);
    CHECK(verdict() != NULL);
}

TEST(message__votes_are_of_their_candidate)
{
    struct raft_message m = small_of(RAFT_REQUEST_VOTE);
    m.request_vote.candidate_id = FROM + 1;
    write_message(&m);
    CHECK_STR(verdict(), "a message contradicts itself");
    m = small_of(RAFT_REQUEST_VOTE);
    write_message(&m);
    bytes[PK_MESSAGE_FRAME + 40] |= 4; /* a flag that does not exist */
    seal();
    CHECK(verdict() != NULL);
}

/* ---- configurations ---- */

static void snapshot_with(const char *first, const char *second, unsigned role)
{
    unsigned char image[256] = {1, 2};
    size_t at = 9;
    image[at] = 11;
    at += 8;
    memcpy(image + at, first, strlen(first) + 1);
    at += strlen(first) + 1;
    image[at++] = 1;
    image[at] = 12;
    at += 8;
    memcpy(image + at, second, strlen(second) + 1);
    at += strlen(second) + 1;
    image[at++] = (unsigned char)role;
    at = (at + 7) / 8 * 8;
    struct raft_message m = snapshot_of(8);
    write_message(&m);
    raft_configuration_close(&conf);
    memcpy(bytes + PK_MESSAGE_FRAME + 40, image, at);
    memcpy(bytes + PK_MESSAGE_FRAME + 40 + at, "12345678", 8);
    len = PK_MESSAGE_FRAME + 40 + at + 8;
    set_header_len((uint32_t)(40 + at));
    seal();
}

TEST(message__configurations_are_sound)
{
    snapshot_with("n1@a:1", "n2@b:2", 1);
    CHECK_STR(verdict(), NULL);
    snapshot_with("n1@a:1", "n1@a:1", 1); /* the same address twice */
    CHECK(verdict() != NULL);
    snapshot_with("n1@a:1", "n2@b:2", 3); /* no such role */
    CHECK(verdict() != NULL);
    snapshot_with("n1@a:1", "n2@b:2", 1);
    unsigned char *image = bytes + PK_MESSAGE_FRAME + 40;
    image[0]++; /* format */
    seal();
    CHECK(verdict() != NULL);
    image[0]--;
    for (unsigned n = 0; n < 256; n++) {
        image[1] = (unsigned char)n; /* how many there are */
        seal();
        CHECK((verdict() == NULL) == (n == 1 || n == 2));
    }
    image[1] = 2;
    image[9] = 12; /* the same id twice */
    seal();
    CHECK(verdict() != NULL);
    image[9] = 0; /* no id */
    seal();
    CHECK(verdict() != NULL);
    image[9] = 11;
    memset(image + 17, 'x', header_len() - 40 - 17); /* an address without an end */
    seal();
    CHECK(verdict() != NULL);
}

/* ---- bounds of the writer ---- */

/* The engine sends the rest when it has seen that it is missing. */
TEST(message__more_entries_than_fit_are_cut)
{
    enum { MANY = 140, EACH = 1024, BIG = PK_MESSAGE_ENTRIES_SENT + 8 };
    static struct raft_entry many[MANY];
    unsigned char *big = calloc(1, BIG);
    CHECK(big != NULL);
    struct raft_message m = append_of(0);
    for (unsigned i = 0; i < MANY; i++) {
        many[i] =
            (struct raft_entry){.term = 1, .type = RAFT_COMMAND, .buf = {big, EACH}};
    }
    m.append_entries.entries = many;
    m.append_entries.n_entries = MANY;
    struct pk_encoded *e = pk_message_encode(&m, FROM);
    CHECK_U64(e->n, 1 + PK_MESSAGE_ENTRIES_SENT / EACH);
    CHECK_U64(e->payload, PK_MESSAGE_ENTRIES_SENT);
    pk_door_resize(e, 0);
    many[0].buf.len = BIG; /* goes alone */
    e = pk_message_encode(&m, FROM);
    CHECK_U64(e->n, 1 + 1);
    CHECK_U64(e->payload, BIG);
    pk_door_resize(e, 0);
    many[0].buf.len = (size_t)PK_MESSAGE_ENTRIES_MAX + 8;
    CHECK(pk_message_encode(&m, FROM) == NULL);
    free(big);
}

TEST(message__what_cant_be_sent_is_not_encoded)
{
    struct raft_message m = {.type = (enum raft_message_type)99};
    CHECK(pk_message_encode(&m, FROM) == NULL);
    m = snapshot_of(8);
    m.install_snapshot.data.len = 0;
    CHECK(pk_message_encode(&m, FROM) == NULL);
    m.install_snapshot.data.len = (size_t)PK_MESSAGE_SNAPSHOT_MAX + 1;
    CHECK(pk_message_encode(&m, FROM) == NULL);
    raft_configuration_close(&conf);
}
