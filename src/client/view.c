/* SPDX-License-Identifier: MIT */
/* Looking: who holds a lock, who waits, and how owners are written and read. */
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/client.h"
#include "client/error.h"
#include "client/url.h"
#include "core/door.h"
#include "core/utf8.h"
#include "host/memory.h"

/* ---- the owner's label: lines of key=value ---- */

/* Four texts of that length, the keys and a pid fit into limits.label_bytes. */
enum { FIELD_MAX = 112, COMMAND_LINE_MAX = 4096 };

/* Copies text into the label's form: printable, on one line, cut to fit. */
static void tidy_text(const char *in, char out[FIELD_MAX])
{
    size_t n = 0;
    while (in[n] != '\0' && n < FIELD_MAX - 1) {
        out[n] = in[n];
        if (in[n] == '\n') {
            out[n] = ' ';
        }
        n++;
    }
    while (n > 0 && ((unsigned char)in[n] & 0xc0) == 0x80) {
        n--; /* not in the middle of a character */
    }
    out[n] = '\0';
    if (!pk_utf8_printable(pk_text(out), false)) {
        for (char *c = out; *c != '\0'; c++) {
            if (*c < ' ' || *c >= 0x7f) {
                *c = '?';
            }
        }
    }
}

/* This process' command line, with spaces between the arguments and without the
 * passwords of URLs. */
static void read_command_line(char out[FIELD_MAX])
{
    char raw[COMMAND_LINE_MAX] = "";
    char line[COMMAND_LINE_MAX] = "";
    size_t used = 0;
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, raw, sizeof raw - 1);
    if (fd >= 0) {
        close(fd);
    }
    for (const char *word = raw; word < raw + n && used < sizeof line;
         word += strlen(word) + 1) {
        char *shown = pk_url_redact(word);
        int more = snprintf(line + used, sizeof line - used, "%s%s",
                            used > 0 && word[0] != '\0' ? " " : "", shown);
        used += more > 0 ? (size_t)more : 0;
        free(shown);
    }
    tidy_text(line, out);
}

/* What the label says of our program: its name. Arguments may be secrets and labels are
 * read by everybody who can look at the store, so that somebody has to ask for them. */
static void read_command(const char *given, char out[FIELD_MAX])
{
    const char *wish = getenv("PICKET_LABEL");
    if (given != NULL) {
        tidy_text(given, out);
    } else if (wish != NULL && strcmp(wish, "command") == 0) {
        read_command_line(out);
    } else {
        tidy_text(program_invocation_short_name, out);
    }
}

static void read_user(char out[FIELD_MAX])
{
    char buffer[1024];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(geteuid(), &entry, buffer, sizeof buffer, &found) == 0 &&
        found != NULL) {
        tidy_text(entry.pw_name, out);
    } else {
        snprintf(out, FIELD_MAX, "%u", (unsigned)geteuid());
    }
}

char *pk_view_label(const char *note, const char *program)
{
    char host[FIELD_MAX] = "?", user[FIELD_MAX], command[FIELD_MAX], remark[FIELD_MAX];
    gethostname(host, sizeof host - 1);
    read_user(user);
    read_command(program, command);
    tidy_text(note != NULL ? note : "", remark);
    return pk_memory_print("host=%s\npid=%d\nuser=%s\ncommand=%s%s%s", host,
                           (int)getpid(), user, command,
                           remark[0] != '\0' ? "\nnote=" : "", remark);
}

/* The value of a key in a label; no bytes when it has none. */
static struct pk_bytes label_field(struct pk_bytes label, const char *key)
{
    size_t key_len = strlen(key);
    const char *at = label.data;
    const char *end = label.data + label.len;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *line_end = newline != NULL ? newline : end;
        if ((size_t)(line_end - at) > key_len && memcmp(at, key, key_len) == 0 &&
            at[key_len] == '=') {
            const char *value = at + key_len + 1;
            return pk_bytes(value, (size_t)(line_end - value));
        }
        at = newline != NULL ? newline + 1 : end;
    }
    return pk_bytes("", 0);
}

void pk_view_principal(const char *label, char *out, size_t size)
{
    struct pk_bytes user = label_field(pk_text(label), "user");
    struct pk_bytes host = label_field(pk_text(label), "host");
    snprintf(out, size, "%.*s@%.*s", (int)user.len, user.data, (int)host.len, host.data);
    if (!pk_utf8_printable(pk_text(out), false)) {
        out[0] = '\0'; /* cut in the middle of a character */
    }
}

/* ---- one sentence ---- */

static const struct pk_effect *first_hold(const struct pk_effects *answer)
{
    for (uint32_t i = 0; i < answer->count; i++) {
        if (answer->list[i].kind == PK_ROW_HOLD) {
            return &answer->list[i];
        }
    }
    return NULL;
}

static void describe_owner(struct pk_bytes label, char *out, size_t size)
{
    struct pk_bytes user = label_field(label, "user");
    struct pk_bytes host = label_field(label, "host");
    struct pk_bytes pid = label_field(label, "pid");
    struct pk_bytes command = label_field(label, "command");
    struct pk_bytes note = label_field(label, "note");
    if (host.len == 0) {
        /* Not a label of ours: whatever its owner wrote. */
        snprintf(out, size, "%.*s", label.len > 0 ? (int)label.len : 7,
                 label.len > 0 ? label.data : "unnamed");
        return;
    }
    snprintf(out, size, "%.*s@%.*s pid %.*s (%.*s)%s%.*s", (int)user.len, user.data,
             (int)host.len, host.data, (int)pid.len, pid.data, (int)command.len,
             command.data, note.len > 0 ? " - " : "", (int)note.len, note.data);
}

void pk_view_describe(const struct pk_effects *answer, char *out, size_t size)
{
    const struct pk_effect *r = &answer->list[0];
    const struct pk_effect *hold = first_hold(answer);
    char queue[48] = "";
    if (r->waiters > 0) {
        snprintf(queue, sizeof queue, "; %u waiting", r->waiters);
    }
    if (hold != NULL) {
        char owner[PK_DESCRIPTION_MAX - 128];
        describe_owner(hold->label, owner, sizeof owner);
        char token[48] = "";
        if (hold->token != 0) {
            snprintf(token, sizeof token, " with token %llu",
                     (unsigned long long)hold->token);
        }
        snprintf(out, size, "held by %s%s, lease %.1f s left%s", owner, token,
                 (double)hold->left_ms / 1e3, queue);
    } else if (r->closed_ms > 0) {
        snprintf(out, size, "closed for %.1f s after an unclean end%s",
                 (double)r->closed_ms / 1e3, queue);
    } else {
        snprintf(out, size, "%s%s",
                 r->waiters > 0 ? "free, but others are first" : "free", queue);
    }
}

/* ---- views ---- */

/* A view, its rows and their strings are one block: rows first, then a pool of bytes. */
struct pool {
    char *at;
    size_t used;
};

static const char *keep_text(struct pool *pool, struct pk_bytes b)
{
    char *to = pool->at + pool->used;
    if (b.len > 0) {
        memcpy(to, b.data, b.len);
    }
    to[b.len] = '\0';
    pool->used += (size_t)b.len + 1;
    return to;
}

static uint64_t number_of(struct pk_bytes b)
{
    uint64_t v = 0;
    for (uint32_t i = 0; i < b.len && i < 18 && b.data[i] >= '0' && b.data[i] <= '9';
         i++) {
        v = v * 10 + (uint64_t)(b.data[i] - '0');
    }
    return v;
}

enum picket_mode pk_view_mode(enum pk_mode m)
{
    return m == PK_SLOT ? PICKET_SLOT : m == PK_SHARED ? PICKET_SHARED : PICKET_EXCLUSIVE;
}

/* Room for a row's strings: the label whole and again in fields, name and value. */
static size_t row_bytes(const struct pk_effect *e)
{
    return 2 * ((size_t)e->label.len + 8) + e->name.len + e->value.len + 8;
}

static void fill_row(struct picket_row *row, const struct pk_effect *e, uint64_t now_ms,
                     struct pool *pool)
{
    row->name = keep_text(pool, e->name);
    row->mode = pk_view_mode(e->mode);
    row->slots = e->slots;
    row->token = e->token;
    row->lease = e->lease;
    row->place = e->place;
    row->for_ms = e->lease != 0 && now_ms > e->since_ms ? now_ms - e->since_ms : 0;
    row->left_ms = e->left_ms;
    row->label = keep_text(pool, e->label);
    row->host = keep_text(pool, label_field(e->label, "host"));
    row->user = keep_text(pool, label_field(e->label, "user"));
    row->command = keep_text(pool, label_field(e->label, "command"));
    row->note = keep_text(pool, label_field(e->label, "note"));
    row->pid = number_of(label_field(e->label, "pid"));
    row->value = keep_text(pool, e->value);
    row->value_len = e->value.len;
    row->holders = e->holders;
    row->waiters = e->waiters;
    row->closed_ms = e->closed_ms;
}

static struct picket_view *make_view(const struct pk_effects *answer, const char *name)
{
    const struct pk_effect *r = &answer->list[0];
    size_t rows = answer->count - 1;
    size_t bytes = strlen(name) + 1;
    for (size_t i = 1; i <= rows; i++) {
        bytes += row_bytes(&answer->list[i]);
    }
    struct picket_view *v =
        pk_door_resize(NULL, sizeof *v + rows * sizeof v->rows[0] + bytes);
    memset(v, 0, sizeof *v);
    v->rows = (struct picket_row *)(void *)(v + 1);
    struct pool pool = {.at = (char *)(v->rows + rows)};
    v->name = keep_text(&pool, pk_text(name));
    v->slots = r->slots;
    v->holders = r->holders;
    v->waiters = r->waiters;
    v->closed_ms = r->closed_ms;
    v->n_rows = rows;
    v->more = r->more != 0;
    for (size_t i = 0; i < rows; i++) {
        fill_row(&v->rows[i], &answer->list[i + 1], r->since_ms, &pool);
    }
    PK_ASSERT(pool.used <= bytes);
    return v;
}

static enum picket_status look(struct picket *p, struct pk_command *c, const char *name,
                               struct picket_view **out)
{
    struct pk_effects answer = {0};
    enum picket_status s = pk_client_ask(p, c, &answer);
    if (s == PICKET_OK) {
        *out = make_view(&answer, name);
    }
    pk_effects_free(&answer);
    return s;
}

enum picket_status picket_show(struct picket *p, const char *name,
                               struct picket_view **out)
{
    struct pk_command c = {
        .verb = PK_LOCK_SHOW, .name = pk_text(name), .count = PK_PAGE_MAX};
    return look(p, &c, name, out);
}

enum picket_status picket_list(struct picket *p, const char *prefix, const char *after,
                               size_t count, struct picket_view **out)
{
    struct pk_command c = {.verb = PK_LOCK_LIST,
                           .name = pk_text(prefix),
                           .cursor = pk_text(after),
                           .count = count};
    return look(p, &c, prefix, out);
}

enum picket_status picket_lease_show(struct picket *p, uint64_t lease,
                                     struct picket_view **out)
{
    struct pk_command c = {.verb = PK_LEASE_SHOW, .lease = lease, .count = PK_PAGE_MAX};
    return look(p, &c, "", out);
}

void picket_view_free(struct picket_view *v)
{
    pk_door_resize(v, 0);
}
