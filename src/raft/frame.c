/* SPDX-License-Identifier: MIT */
#include "raft/frame.h"

#include <raft.h>
#include <string.h>

#include "core/wire.h"

enum {
    WORD = 8,
    PREAMBLE = 2 * WORD,
    APPEND_FIXED = 5 * WORD, /* up to the number of entries */
    APPEND_ENTRY = 2 * WORD,
    SNAPSHOT_FIXED = 6 * WORD, /* all but the configuration */
    /* As much of the others as the library reads. */
    APPEND_RESULT = 4 * WORD,
    VOTE = 5 * WORD,
    VOTE_RESULT = 3 * WORD,
    TIMEOUT_NOW = 3 * WORD,
    OTHERS_MOST = 256, /* newer ones may have more to say */
};

static const char too_long[] = "a message is longer than any node would send";
static const char broken[] = "a message contradicts itself";

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
    uint64_t ids[PK_FRAME_MEMBERS_MAX];
    const char *addresses[PK_FRAME_MEMBERS_MAX];
    struct pk_reader r = {.at = in, .end = in + len};
    unsigned format = pk_read_byte(&r);
    const unsigned char *word = pk_read_raw(&r, WORD);
    uint64_t n = word == NULL ? UINT64_MAX : pk_get_u64(word);
    if (format != 1 || n == 0 || n > PK_FRAME_MEMBERS_MAX) {
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

/* ---- headers, word by word ---- */

static const char *check_header_length(struct pk_frame *f, uint64_t length)
{
    static const uint64_t least[] = {
        [RAFT_APPEND_ENTRIES] = APPEND_FIXED,
        [RAFT_APPEND_ENTRIES_RESULT] = APPEND_RESULT,
        [RAFT_REQUEST_VOTE] = VOTE,
        [RAFT_REQUEST_VOTE_RESULT] = VOTE_RESULT,
        [RAFT_INSTALL_SNAPSHOT] = SNAPSHOT_FIXED,
        [RAFT_TIMEOUT_NOW] = TIMEOUT_NOW,
    };
    bool grows = f->type == RAFT_APPEND_ENTRIES || f->type == RAFT_INSTALL_SNAPSHOT;
    f->header = length;
    if (length > (grows ? PK_FRAME_HEADER_MAX : OTHERS_MOST)) {
        return too_long;
    }
    return length < least[f->type] || length % WORD != 0 ? broken : NULL;
}

static const char *check_entry(struct pk_frame *f, uint64_t word)
{
    unsigned type = (unsigned)(word & 0xff);
    uint64_t length = word >> 32;
    /* A batch of nothing but empty entries would leave the library without a buffer. */
    if (type < RAFT_COMMAND || type > RAFT_CHANGE || length == 0 || length % WORD != 0) {
        return broken;
    }
    f->payload += length;
    return f->payload > PK_FRAME_ENTRIES_MAX ? too_long : NULL;
}

/* `offset` is where in the header the word stands. */
static const char *check_append(struct pk_frame *f, uint64_t offset, uint64_t word)
{
    if (offset == APPEND_FIXED - WORD) {
        f->count = word;
        return word > (f->header - APPEND_FIXED) / APPEND_ENTRY ? broken : NULL;
    }
    bool in_table =
        offset >= APPEND_FIXED && offset < APPEND_FIXED + f->count * APPEND_ENTRY;
    bool second = (offset - APPEND_FIXED) % APPEND_ENTRY == WORD;
    return in_table && second ? check_entry(f, word) : NULL;
}

static const char *check_snapshot(struct pk_frame *f, uint64_t offset, uint64_t word)
{
    const uint64_t begin = SNAPSHOT_FIXED - WORD;
    if (offset < begin - WORD) {
        return NULL;
    }
    if (offset == begin - WORD) {
        f->count = word;
        bool fits = word <= f->header - SNAPSHOT_FIXED && word % WORD == 0 && word > 0;
        return !fits ? broken : word > PK_FRAME_CONFIGURATION_MAX ? too_long : NULL;
    }
    if (offset < begin + f->count) {
        memcpy(f->configuration + (offset - begin), f->word, WORD);
        bool last = offset == begin + f->count - WORD;
        bool good = !last || is_configuration(f->configuration, (size_t)f->count);
        return good ? NULL : broken;
    }
    if (offset == begin + f->count) {
        f->payload = word;
        return word == 0 ? broken : word > PK_FRAME_SNAPSHOT_MAX ? too_long : NULL;
    }
    return NULL;
}

/* A word is complete; f->at is behind it. */
static const char *check_word(struct pk_frame *f)
{
    uint64_t word = pk_get_u64(f->word);
    if (f->at == WORD) {
        f->type = (unsigned)(word & 0xff);
        bool known = f->type >= RAFT_APPEND_ENTRIES && f->type <= RAFT_TIMEOUT_NOW;
        return known ? NULL : "a message is of no known type";
    }
    if (f->at == PREAMBLE) {
        return check_header_length(f, word);
    }
    uint64_t offset = f->at - PREAMBLE - WORD;
    switch (f->type) {
    case RAFT_APPEND_ENTRIES:
        return check_append(f, offset, word);
    case RAFT_INSTALL_SNAPSHOT:
        return check_snapshot(f, offset, word);
    default:
        return NULL;
    }
}

/* ---- the stream ---- */

static void begin_message(struct pk_frame *f)
{
    f->at = 0;
    f->header = 0;
    f->count = 0;
    f->payload = 0;
    f->in_payload = false;
}

static size_t skip_payload(struct pk_frame *f, size_t len)
{
    size_t n = f->payload < len ? (size_t)f->payload : len;
    f->payload -= n;
    if (f->payload == 0) {
        begin_message(f);
    }
    return n;
}

static size_t fill_word(struct pk_frame *f, const unsigned char *in, size_t len)
{
    size_t have = f->at % WORD;
    size_t n = WORD - have < len ? WORD - have : len;
    memcpy(f->word + have, in, n);
    f->at += n;
    return n;
}

const char *pk_frame_check(struct pk_frame *f, const unsigned char *in, size_t len)
{
    const char *why = NULL;
    while (len > 0 && why == NULL) {
        size_t n = f->in_payload ? skip_payload(f, len) : fill_word(f, in, len);
        in += n;
        len -= n;
        if (!f->in_payload && f->at > 0 && f->at % WORD == 0) {
            why = check_word(f);
            bool header_done = f->at >= PREAMBLE && f->at == PREAMBLE + f->header;
            if (header_done && f->payload > 0) {
                f->in_payload = true;
            } else if (header_done) {
                begin_message(f);
            }
        }
    }
    return why;
}
