/* SPDX-License-Identifier: MIT */
#include "fence/resource.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "client/error.h"
#include "core/command.h"
#include "core/door.h"
#include "fence/cas.h"

struct picket_resource {
    const struct pk_resource_kind *kind;
    struct pk_resource *own;
    pthread_mutex_t turn; /* one call at a time: most kinds have one connection */
};

static const struct pk_resource_kind over_cas = {PK_CAS_VERBS};

const struct pk_resource_kind *pk_resource_kind_at(size_t i)
{
    static const struct pk_resource_kind *const kinds[] = {
        &pk_resource_local,    &pk_resource_picket, &pk_resource_file,
#ifdef PICKET_WITH_SQLITE
        &pk_resource_sqlite,
#endif
#ifdef PICKET_WITH_POSTGRES
        &pk_resource_postgres,
#endif
#ifdef PICKET_WITH_MYSQL
        &pk_resource_mysql,
#endif
#ifdef PICKET_WITH_REDIS
        &pk_resource_redis,
#endif
    };
    return i < sizeof kinds / sizeof kinds[0] ? kinds[i] : NULL;
}

/* ---- opening ---- */

static bool has_scheme(const char *url, const char *scheme)
{
    size_t len = scheme == NULL ? 0 : strlen(scheme);
    return len > 0 && strncmp(url, scheme, len) == 0 && url[len] == ':';
}

/* A sentence about a URL of no kind that is built in. Its scheme alone is quoted: the
 * rest may have a password in it. */
static enum picket_status fail_unknown(const char *url)
{
    char forms[512] = "";
    size_t used = 0;
    const struct pk_resource_kind *k;
    for (size_t i = 0; (k = pk_resource_kind_at(i)) != NULL; i++) {
        int n = snprintf(forms + used, sizeof forms - used, "%s%s", i == 0 ? "" : ", ",
                         k->form);
        used += n > 0 && (size_t)n < sizeof forms - used ? (size_t)n : 0;
    }
    int len = (int)strcspn(url, ":");
    return pk_fail(PICKET_UNSUPPORTED,
                   "\"%.*s\" is no kind of resource here; there are %s",
                   len < 40 ? len : 40, url, forms);
}

static enum picket_status find_kind(const char *url, const struct pk_resource_kind **out)
{
    const struct pk_resource_kind *k;
    for (size_t i = 0; (k = pk_resource_kind_at(i)) != NULL; i++) {
        if (has_scheme(url, k->scheme) || has_scheme(url, k->alias)) {
            *out = k;
            return PICKET_OK;
        }
    }
    return fail_unknown(url);
}

static struct picket_resource *make(const struct pk_resource_kind *kind,
                                    struct pk_resource *own)
{
    struct picket_resource *r = pk_door_resize(NULL, sizeof *r);
    r->kind = kind;
    r->own = own;
    pthread_mutex_init(&r->turn, NULL);
    return r;
}

enum picket_status picket_resource_open(const char *url, struct picket_resource **out)
{
    struct pk_resource *own = NULL;
    const struct pk_resource_kind *kind = NULL;
    enum picket_status s = find_kind(url, &kind);
    if (s == PICKET_OK && kind != NULL) {
        s = kind->open(url, &own);
    }
    if (s == PICKET_OK) {
        *out = make(kind, own);
    }
    return s;
}

enum picket_status picket_resource_over(const struct picket_cas *cas,
                                        struct picket_resource **out)
{
    if (cas->load == NULL || cas->compare_and_swap == NULL) {
        return pk_fail(PICKET_BADARG, "load and compare_and_swap are both needed");
    }
    *out = make(&over_cas, pk_cas_new(cas));
    return PICKET_OK;
}

void picket_resource_close(struct picket_resource *r)
{
    if (r != NULL) {
        r->kind->close(r->own);
        pthread_mutex_destroy(&r->turn);
        pk_door_resize(r, 0);
    }
}

/* ---- calls: what is wrong with the words is said before anybody is asked ---- */

static enum picket_status check_name(const char *name)
{
    const char *wrong = pk_name_wrong(pk_text(name));
    return wrong == NULL ? PICKET_OK : pk_fail(PICKET_BADARG, "%s", wrong);
}

static enum picket_status check_words(const char *name, uint64_t token)
{
    if (token == 0 || token > PK_TOKEN_MAX) {
        return pk_fail(PICKET_BADARG, "a token is a number from 1 to 2^53 - 1");
    }
    return check_name(name);
}

/* Ends a call that began with the mutex taken; hands out the fence where it was asked
 * for and told. */
static enum picket_status end(struct picket_resource *r, enum picket_status s,
                              uint64_t told, uint64_t *fence)
{
    pthread_mutex_unlock(&r->turn);
    bool known = s == PICKET_OK || s == PICKET_STALE || s == PICKET_UNCLAIMED;
    if (known && fence != NULL) {
        *fence = told;
    }
    return s;
}

typedef enum picket_status verb(struct pk_resource *r, const char *name, uint64_t token,
                                uint64_t *fence);

static enum picket_status ask(struct picket_resource *r, verb *v, const char *name,
                              uint64_t token, uint64_t *fence)
{
    uint64_t told = 0;
    enum picket_status s = check_words(name, token);
    if (s != PICKET_OK) {
        return s;
    }
    pthread_mutex_lock(&r->turn);
    s = v(r->own, name, token, &told);
    return end(r, s, told, fence);
}

enum picket_status picket_resource_claim(struct picket_resource *r, const char *name,
                                         uint64_t token, uint64_t *fence)
{
    return ask(r, r->kind->claim, name, token, fence);
}

enum picket_status picket_resource_check(struct picket_resource *r, const char *name,
                                         uint64_t token, uint64_t *fence)
{
    return ask(r, r->kind->check, name, token, fence);
}

enum picket_status picket_resource_set(struct picket_resource *r, const char *name,
                                       uint64_t token, const void *value, size_t len,
                                       uint64_t *fence)
{
    uint64_t told = 0;
    enum picket_status s = check_words(name, token);
    if (s == PICKET_OK && len > PK_VALUE_CEILING) {
        s = pk_fail(PICKET_LIMIT, "a value has at most %d bytes", PK_VALUE_CEILING);
    }
    if (s != PICKET_OK) {
        return s;
    }
    pthread_mutex_lock(&r->turn);
    s = r->kind->set(r->own, name, token, pk_bytes(len == 0 ? "" : value, len), &told);
    return end(r, s, told, fence);
}

enum picket_status picket_resource_get(struct picket_resource *r, const char *name,
                                       uint64_t token, char **value, size_t *len,
                                       uint64_t *fence)
{
    uint64_t told = 0;
    enum picket_status s = token == 0 ? check_name(name) : check_words(name, token);
    if (s != PICKET_OK) {
        return s;
    }
    pthread_mutex_lock(&r->turn);
    s = r->kind->get(r->own, name, token, value, len, &told);
    return end(r, s, told, fence);
}

enum picket_status picket_resource_mode(struct picket_resource *r, const char *name,
                                        int shadow)
{
    enum picket_status s = check_name(name);
    if (s != PICKET_OK) {
        return s;
    }
    pthread_mutex_lock(&r->turn);
    return end(r, r->kind->mode(r->own, name, shadow != 0), 0, NULL);
}

enum picket_status picket_resource_show(struct picket_resource *r, const char *name,
                                        struct picket_fence_state *out)
{
    enum picket_status s = check_name(name);
    if (s != PICKET_OK) {
        return s;
    }
    pthread_mutex_lock(&r->turn);
    return end(r, r->kind->show(r->own, name, out), 0, NULL);
}

enum picket_status pk_resource_overwrite(struct picket_resource *r, const char *name,
                                         struct pk_bytes value)
{
    pthread_mutex_lock(&r->turn);
    return end(r, r->kind->overwrite(r->own, name, value), 0, NULL);
}

/* ---- installing ---- */

static enum picket_status make_sql(const char *url, const struct picket_fence_table *t,
                                   const struct pk_resource_kind **kind, char **sql)
{
    enum picket_status s = find_kind(url, kind);
    if (s != PICKET_OK || *kind == NULL) {
        return s;
    }
    return (*kind)->sql != NULL
               ? (*kind)->sql(t, sql)
               : pk_fail(PICKET_UNSUPPORTED, "%s needs no installation", (*kind)->form);
}

enum picket_status picket_fence_sql(const char *url, const struct picket_fence_table *t,
                                    char **sql)
{
    const struct pk_resource_kind *kind = NULL;
    return make_sql(url, t, &kind, sql);
}

enum picket_status picket_fence_install(const char *url,
                                        const struct picket_fence_table *t)
{
    char *sql = NULL;
    struct pk_resource *own = NULL;
    const struct pk_resource_kind *kind = NULL;
    enum picket_status s = make_sql(url, t, &kind, &sql);
    if (s != PICKET_OK) {
        return s;
    }
    if (kind != NULL) {
        s = kind->open(url, &own);
    }
    if (s == PICKET_OK && own != NULL) {
        s = kind->run(own, sql);
        kind->close(own);
    }
    pk_door_resize(sql, 0);
    return s;
}
