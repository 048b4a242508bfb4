/* SPDX-License-Identifier: MIT */
#include "client/redis_link.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "client/error.h"
#include "core/door.h"
#include "host/clock.h"
#include "host/fd.h"
#include "host/memory.h"
#include "host/socket.h"

enum {
    READ_BYTES = 16 * 1024,
    NODES_MAX = PK_PLACES_MAX,
    OLDEST = 5, /* before, what a script does was not replicated as it was done */
};

/* ---- words ---- */

void pk_redis_add(struct pk_redis_words *w, struct pk_bytes word)
{
    PK_ASSERT(w->count < PK_REDIS_WORDS_MAX);
    w->data[w->count] = word.data != NULL ? word.data : "";
    w->len[w->count++] = word.len;
}

void pk_redis_add_text(struct pk_redis_words *w, const char *word)
{
    pk_redis_add(w, pk_text(word));
}

void pk_redis_add_number(struct pk_redis_words *w, uint64_t number)
{
    PK_ASSERT(w->n_numbers < PK_REDIS_NUMBERS_MAX);
    char *text = w->numbers[w->n_numbers++];
    (void)snprintf(text, sizeof w->numbers[0], "%" PRIu64, number);
    pk_redis_add_text(w, text);
}

/* ---- the connection ---- */

void pk_redis_init(struct pk_redis_link *l)
{
    l->fd = -1;
}

static void forget_found(struct pk_redis_link *l)
{
    if (l->found != NULL) {
        freeaddrinfo(l->found);
        l->found = NULL;
    }
    l->next = NULL;
}

void pk_redis_hang_up(struct pk_redis_link *l)
{
    pk_fd_close(&l->fd);
    forget_found(l);
    if (l->reader != NULL) {
        redisReaderFree(l->reader);
        l->reader = NULL;
    }
    l->out_len = 0;
    l->sent = 0;
}

static void forget_question(struct pk_redis_link *l)
{
    if (l->reply != NULL) {
        freeReplyObject(l->reply);
        l->reply = NULL;
    }
    if (l->question != NULL) {
        redisFreeCommand(l->question);
        l->question = NULL;
    }
    l->pending = false;
    l->maybe = false;
    l->repeated = false;
    l->status = PICKET_OK;
}

void pk_redis_free(struct pk_redis_link *l)
{
    pk_redis_hang_up(l);
    forget_question(l);
    (void)pk_door_resize(l->out, 0);
    l->out = NULL;
}

/* The question will have no answer. */
static void give_up(struct pk_redis_link *l, enum picket_status s, const char *why)
{
    l->status = s;
    (void)snprintf(l->why, sizeof l->why, "%s", why);
    l->pending = false;
    pk_redis_hang_up(l);
}

static void give_up_away(struct pk_redis_link *l, const char *why)
{
    char text[sizeof l->why];
    (void)snprintf(text, sizeof text, "%.200s can't be reached: %.150s", l->where, why);
    give_up(l, PICKET_UNREACHABLE, text);
}

static bool begin_to_connect(struct pk_redis_link *l, const struct sockaddr *to,
                             socklen_t len)
{
    l->fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (l->fd < 0) {
        return false;
    }
    if (to->sa_family != AF_UNIX) {
        pk_socket_tune(l->fd);
    }
    if (connect(l->fd, to, len) == 0 || errno == EINPROGRESS) {
        l->stage = PK_REDIS_DIALLING;
        return true;
    }
    int error = errno;
    pk_fd_close(&l->fd);
    errno = error;
    return false;
}

/* Begins with the next address; `error` is what was wrong with the one before. */
static void dial_next(struct pk_redis_link *l, int error)
{
    pk_fd_close(&l->fd);
    while (l->next != NULL) {
        const struct addrinfo *a = l->next;
        l->next = a->ai_next;
        if (begin_to_connect(l, a->ai_addr, a->ai_addrlen)) {
            return;
        }
        error = errno;
    }
    give_up_away(l, strerror(error));
}

static void dial_socket(struct pk_redis_link *l, const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof to.sun_path) {
        give_up_away(l, "the socket's path is too long");
        return;
    }
    memcpy(to.sun_path, path, strlen(path) + 1);
    if (!begin_to_connect(l, (const struct sockaddr *)&to, sizeof to)) {
        give_up_away(l, strerror(errno));
    }
}

static void dial(struct pk_redis_link *l)
{
    const char *path = pk_url_option(l->url, "socket");
    const struct pk_place *at = &l->place;
    char port[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    l->reader = redisReaderCreate();
    pk_memory_need(l->reader);
    if (path[0] != '\0') {
        dial_socket(l, path);
        return;
    }
    (void)snprintf(port, sizeof port, "%u", at->port != 0 ? at->port : PK_REDIS_PORT);
    int failed = getaddrinfo(at->host[0] != '\0' ? at->host : "127.0.0.1", port, &hints,
                             &l->found);
    if (failed != 0) {
        l->found = NULL;
        give_up_away(l, gai_strerror(failed));
        return;
    }
    l->next = l->found;
    dial_next(l, 0);
}

/* ---- the greeting: a password, a number, what is there, the script ---- */

enum greeting { AUTH, SELECT, INFO, LOAD, GREETINGS };

static bool greets_with(const struct pk_redis_link *l, enum greeting g)
{
    const bool given[] = {[AUTH] = l->url->password[0] != '\0',
                          [SELECT] = l->url->path[0] != '\0',
                          [INFO] = l->locks,
                          [LOAD] = l->script != NULL};
    return given[g];
}

static void push(struct pk_redis_link *l, const char *bytes, size_t len)
{
    l->out = pk_door_resize(l->out, l->out_len + len);
    memcpy(l->out + l->out_len, bytes, len);
    l->out_len += len;
}

static void push_words(struct pk_redis_link *l, const struct pk_redis_words *w)
{
    char *text = NULL;
    int len = redisFormatCommandArgv(&text, w->count, (const char **)w->data, w->len);
    pk_memory_need(len > 0 ? text : NULL);
    push(l, text, (size_t)len);
    redisFreeCommand(text);
}

static void push_greeting(struct pk_redis_link *l, enum greeting g)
{
    struct pk_redis_words w = {.count = 0};
    static const char *const names[] = {"AUTH", "SELECT", "INFO", "SCRIPT"};
    pk_redis_add_text(&w, names[g]);
    if (g == AUTH && l->url->user[0] != '\0') {
        pk_redis_add_text(&w, l->url->user);
    }
    if (g == LOAD) {
        pk_redis_add_text(&w, "LOAD");
    }
    pk_redis_add_text(&w, g == AUTH     ? l->url->password
                          : g == SELECT ? l->url->path
                          : g == INFO   ? "server"
                                        : l->script);
    push_words(l, &w);
}

/* Who is greeted answers in that order; the question goes out after it. */
static void greet(struct pk_redis_link *l)
{
    l->stage = PK_REDIS_GREETING;
    l->greeting = 0;
    l->digest[0] = '\0';
    for (int g = 0; g < GREETINGS; g++) {
        if (greets_with(l, (enum greeting)g)) {
            push_greeting(l, (enum greeting)g);
        }
    }
}

static int next_greeting(const struct pk_redis_link *l, int from)
{
    while (from < GREETINGS && !greets_with(l, (enum greeting)from)) {
        from++;
    }
    return from;
}

/* Goes on with the question when all of the greeting is answered. */
static void look_ready(struct pk_redis_link *l)
{
    l->greeting = next_greeting(l, l->greeting);
    if (l->stage == PK_REDIS_GREETING && l->greeting == GREETINGS) {
        l->stage = PK_REDIS_READY;
        if (l->question != NULL) {
            push(l, l->question, l->question_len);
        } else {
            l->pending = false; /* being connected was all */
        }
    }
}

/* Without the permission for INFO or SCRIPT things go on: the calls will tell. */
static void absorb_greeting(struct pk_redis_link *l, const redisReply *r)
{
    bool failed = r->type == REDIS_REPLY_ERROR;
    const char *text = r->str != NULL ? r->str : "";
    bool vital = l->greeting == AUTH || l->greeting == SELECT ||
                 strncmp(text, "NOAUTH", 6) == 0 || strncmp(text, "LOADING", 7) == 0;
    if (failed && vital) {
        enum picket_status s = pk_redis_refused(l->where, text);
        give_up(l, s, picket_last_error());
        return;
    }
    const char *unfit = l->greeting == INFO && !failed ? pk_redis_unfit(text) : NULL;
    if (unfit != NULL) {
        char why[sizeof l->why];
        (void)snprintf(why, sizeof why, "%.200s %.190s", l->where, unfit);
        give_up(l, PICKET_STORE, why);
        return;
    }
    if (l->greeting == LOAD && !failed) {
        (void)snprintf(l->digest, sizeof l->digest, "%s", text);
    }
    l->greeting++;
    look_ready(l);
}

/* ---- one step ---- */

static void send_more(struct pk_redis_link *l)
{
    while (l->sent < l->out_len) {
        ssize_t n = send(l->fd, l->out + l->sent, l->out_len - l->sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n < 0 && errno != EINTR) {
            give_up_away(l, strerror(errno));
            return;
        }
        l->maybe = l->maybe || l->stage == PK_REDIS_READY;
        l->sent += n > 0 ? (size_t)n : 0;
    }
    l->out_len = 0;
    l->sent = 0;
}

static void absorb(struct pk_redis_link *l, redisReply *r)
{
    if (l->stage == PK_REDIS_GREETING) {
        absorb_greeting(l, r);
        freeReplyObject(r);
        return;
    }
    l->reply = r;
    l->pending = false;
}

/* Takes replies from what has come; all that were asked for, and no more. */
static void absorb_replies(struct pk_redis_link *l)
{
    void *reply = NULL;
    while (l->pending && l->fd >= 0) {
        if (redisReaderGetReply(l->reader, &reply) != REDIS_OK) {
            pk_memory_need(l->reader->err == REDIS_ERR_OOM ? NULL : l->reader);
            char why[sizeof l->why];
            (void)snprintf(why, sizeof why, "%.200s is no Redis: it answers otherwise",
                           l->where);
            give_up(l, PICKET_STORE, why);
            return;
        }
        if (reply == NULL) {
            return;
        }
        absorb(l, reply);
    }
}

static void receive_more(struct pk_redis_link *l)
{
    char bytes[READ_BYTES];
    ssize_t n = recv(l->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n <= 0) {
        give_up_away(l, n == 0 ? "the connection was closed" : strerror(errno));
        return;
    }
    if (redisReaderFeed(l->reader, bytes, (size_t)n) != REDIS_OK) {
        pk_memory_out();
    }
    absorb_replies(l);
}

static void step(struct pk_redis_link *l, short events)
{
    if (l->stage == PK_REDIS_DIALLING) {
        int error = 0;
        socklen_t len = sizeof error;
        if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0 || error != 0) {
            dial_next(l, error != 0 ? error : errno);
            return;
        }
        forget_found(l);
        greet(l);
        look_ready(l);
    } else if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) {
        receive_more(l);
    }
    if (l->fd >= 0 && l->stage != PK_REDIS_DIALLING) {
        send_more(l);
    }
}

/* ---- questions ---- */

void pk_redis_put(struct pk_redis_link *l, const struct pk_redis_words *w)
{
    forget_question(l);
    int len =
        redisFormatCommandArgv(&l->question, w->count, (const char **)w->data, w->len);
    pk_memory_need(len > 0 ? l->question : NULL);
    l->question_len = (size_t)len;
    l->pending = true;
    if (l->fd >= 0 && l->stage == PK_REDIS_READY) {
        push(l, l->question, l->question_len);
        send_more(l);
    }
}

static void give_up_late(struct pk_redis_link *l)
{
    give_up_away(l, l->fd >= 0 && l->stage != PK_REDIS_DIALLING
                        ? "it does not answer in time"
                        : "no connection in time");
}

/* The next wait of all links, of which `fds` has those that wait. */
static size_t list_pending(struct pk_redis_link *const *links, size_t n,
                           struct pollfd *fds, struct pk_redis_link **who)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        struct pk_redis_link *l = links[i];
        if (l->pending && l->fd < 0) {
            dial(l);
        }
        if (l->pending && l->fd >= 0) {
            bool writes = l->stage == PK_REDIS_DIALLING || l->sent < l->out_len;
            who[count] = l;
            fds[count++] = (struct pollfd){
                .fd = l->fd, .events = (short)(POLLIN | (writes ? POLLOUT : 0))};
        }
    }
    return count;
}

void pk_redis_gather(struct pk_redis_link *const *links, size_t n, uint64_t until_ms)
{
    struct pollfd fds[NODES_MAX];
    struct pk_redis_link *who[NODES_MAX];
    PK_ASSERT(n <= NODES_MAX);
    for (;;) {
        size_t count = list_pending(links, n, fds, who);
        uint64_t now = pk_clock_ms();
        if (count == 0) {
            return;
        }
        uint64_t left = until_ms > now ? until_ms - now : 0;
        int ready = poll(fds, count, left < 1000 ? (int)left : 1000);
        for (size_t i = 0; i < count && ready > 0; i++) {
            if (fds[i].revents != 0) {
                step(who[i], fds[i].revents);
            }
        }
        for (size_t i = 0; i < count && ready <= 0 && left == 0; i++) {
            give_up_late(who[i]);
        }
    }
}

static void gather_one(struct pk_redis_link *l, uint64_t until_ms)
{
    struct pk_redis_link *const one[] = {l};
    pk_redis_gather(one, 1, until_ms);
}

enum picket_status pk_redis_reach(struct pk_redis_link *l, uint64_t until_ms)
{
    forget_question(l);
    l->pending = l->fd < 0 || l->stage != PK_REDIS_READY;
    gather_one(l, until_ms);
    return l->status == PICKET_OK ? PICKET_OK : pk_fail(l->status, "%s", l->why);
}

enum picket_status pk_redis_ask(struct pk_redis_link *l, const struct pk_redis_words *w,
                                bool once, uint64_t until_ms, redisReply **out)
{
    bool fresh = l->fd < 0;
    pk_redis_put(l, w);
    gather_one(l, until_ms);
    bool broke = l->status == PICKET_UNREACHABLE;
    if (broke && !fresh && !(once && l->maybe) && pk_clock_ms() < until_ms) {
        bool maybe = l->maybe;
        pk_redis_put(l, w);
        l->maybe = maybe || l->maybe;
        l->repeated = maybe;
        gather_one(l, until_ms);
    }
    *out = l->reply;
    l->reply = NULL;
    /* Whatever went wrong, the request may have been executed before. */
    if (l->status != PICKET_OK && l->maybe) {
        return pk_fail(PICKET_UNKNOWN,
                       "no answer from %s, so it may or may not have been done (%s)",
                       l->where, l->why);
    }
    return l->status == PICKET_OK ? PICKET_OK : pk_fail(l->status, "%s", l->why);
}

enum picket_status pk_redis_command(struct pk_redis_link *l,
                                    const struct pk_redis_words *w, bool once,
                                    uint64_t until_ms, redisReply **out)
{
    enum picket_status s = pk_redis_ask(l, w, once, until_ms, out);
    if (*out != NULL && (*out)->type == REDIS_REPLY_ERROR) {
        s = pk_redis_refused(l->where, (*out)->str);
        freeReplyObject(*out);
        *out = NULL;
    }
    return s;
}

/* ---- messages ---- */

bool pk_redis_listen(struct pk_redis_link *l)
{
    forget_question(l);
    if (l->fd >= 0) {
        receive_more(l);
    }
    return l->fd >= 0;
}

redisReply *pk_redis_heard(struct pk_redis_link *l)
{
    void *reply = NULL;
    if (l->fd >= 0 && redisReaderGetReply(l->reader, &reply) != REDIS_OK) {
        pk_memory_need(l->reader->err == REDIS_ERR_OOM ? NULL : l->reader);
        pk_redis_hang_up(l);
    }
    return reply;
}

/* ---- scripts ---- */

/* The first two words: by its digest there, or whole. */
static void name_script(struct pk_redis_words *w, const char *digest, const char *script)
{
    bool known = digest[0] != '\0';
    w->data[0] = known ? "EVALSHA" : "EVAL";
    w->len[0] = strlen(w->data[0]);
    w->data[1] = known ? digest : script;
    w->len[1] = strlen(w->data[1]);
}

void pk_redis_call(const struct pk_redis_link *l, struct pk_redis_words *w)
{
    w->count = 2;
    w->n_numbers = 0;
    name_script(w, l->digest, l->script);
}

bool pk_redis_forgot(const struct pk_redis_link *l, struct pk_redis_words *w,
                     const redisReply *reply)
{
    if (reply == NULL || reply->type != REDIS_REPLY_ERROR ||
        strncmp(reply->str, "NOSCRIPT", 8) != 0) {
        return false;
    }
    name_script(w, "", l->script);
    return true;
}

enum picket_status pk_redis_run(struct pk_redis_link *l, struct pk_redis_words *w,
                                bool once, uint64_t until_ms, redisReply **out)
{
    *out = NULL;
    enum picket_status s = pk_redis_reach(l, until_ms);
    if (s != PICKET_OK) {
        return s;
    }
    name_script(w, l->digest, l->script); /* a new connection may have learnt it */
    s = pk_redis_ask(l, w, once, until_ms, out);
    if (pk_redis_forgot(l, w, *out)) {
        freeReplyObject(*out);
        s = pk_redis_ask(l, w, once, until_ms, out);
    }
    return s;
}

/* ---- what servers say ---- */

struct refusal {
    const char *code;
    enum picket_status status;
    const char *say; /* NULL: the server's own words */
};

static const struct refusal refusals[] = {
    {"NOAUTH ", PICKET_DENIED, NULL},
    {"WRONGPASS ", PICKET_DENIED, NULL},
    {"NOPERM ", PICKET_DENIED, NULL},
    {"ERR invalid password", PICKET_DENIED, NULL},
    {"ERR AUTH ", PICKET_DENIED, NULL},
    {"ERR Client sent AUTH", PICKET_DENIED, NULL},
    {"LOADING ", PICKET_UNREACHABLE, NULL},
    {"MASTERDOWN ", PICKET_UNREACHABLE, NULL},
    {"BUSY ", PICKET_UNREACHABLE, NULL},
    {"NOREPLICAS ", PICKET_UNREACHABLE, NULL},
    {"ERR max number of", PICKET_UNREACHABLE, NULL},
    {"READONLY ", PICKET_STORE,
     "is a replica, which can't be written to (READONLY); name its master"},
    {"MOVED ", PICKET_STORE, "is a node of a Redis Cluster; name a single server"},
    {"CLUSTERDOWN ", PICKET_STORE, "is a node of a Redis Cluster; name a single server"},
    {"CROSSSLOT ", PICKET_STORE, "is a node of a Redis Cluster; name a single server"},
    {"OOM ", PICKET_STORE, "is full (maxmemory); free some, or give it more"},
};

/* Whether the error has this code: at its front, or, from inside of a script of older
 * servers, behind a dash. */
static bool has_code(const char *text, const char *code)
{
    char inside[40];
    (void)snprintf(inside, sizeof inside, " -%s", code);
    return strncmp(text, code, strlen(code)) == 0 || strstr(text, inside) != NULL;
}

enum picket_status pk_redis_refused(const char *where, const char *text)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const struct refusal *r = &refusals[i];
        if (has_code(text, r->code)) {
            return r->say != NULL ? pk_fail(r->status, "%s %s", where, r->say)
                                  : pk_fail(r->status, "%s: %s", where, text);
        }
    }
    return pk_fail(PICKET_STORE, "%s: %s", where, text);
}

struct pk_bytes pk_redis_info(const char *info, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = info; at != NULL && *at != '\0';) {
        if (strncmp(at, name, len) == 0 && at[len] == ':') {
            at += len + 1;
            return pk_bytes(at, strcspn(at, "\r\n"));
        }
        at = strchr(at, '\n');
        at = at != NULL ? at + 1 : NULL;
    }
    return pk_bytes("", 0);
}

const char *pk_redis_unfit(const char *info)
{
    struct pk_bytes version = pk_redis_info(info, "redis_version");
    if (version.len == 0) {
        return "is no Redis, by its own words (INFO)";
    }
    if (strtoul(version.data, NULL, 10) < OLDEST) {
        return "is too old; Redis 5 or newer is needed";
    }
    struct pk_bytes mode = pk_redis_info(info, "redis_mode");
    if (pk_bytes_equal(mode, pk_text("cluster"))) {
        return "is a node of a Redis Cluster; name a single server";
    }
    if (pk_bytes_equal(mode, pk_text("sentinel"))) {
        return "is a Sentinel, which keeps no keys; name the master";
    }
    return NULL;
}
