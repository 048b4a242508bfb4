/* SPDX-License-Identifier: MIT */
/*
 * Consul's own way, as lean as can be: a session, then PUT ?acquire and PUT ?release of
 * one key over one connection of libcurl. `token`: also reads the key back, as one has to
 * for a fencing token. consul-pairs HOST:PORT plain|token SECONDS
 */
#include <curl/curl.h>
#include <string.h>

#include "series.h"

struct line {
    CURL *easy;
    char base[128], session[64], answer[4096];
    size_t len;
    bool token;
};

static size_t take(char *bytes, size_t size, size_t n, void *arg)
{
    struct line *l = arg;
    size_t len = size * n < sizeof l->answer - 1 - l->len ? size * n : 0;
    memcpy(l->answer + l->len, bytes, len);
    l->len += len;
    l->answer[l->len] = '\0';
    return size * n;
}

static bool ask(struct line *l, const char *method, const char *path, const char *body)
{
    char url[320];
    (void)snprintf(url, sizeof url, "%s%s", l->base, path);
    l->len = 0;
    curl_easy_setopt(l->easy, CURLOPT_URL, url);
    if (body != NULL) {
        curl_easy_setopt(l->easy, CURLOPT_POSTFIELDS, body);
    } else {
        curl_easy_setopt(l->easy, CURLOPT_HTTPGET, 1L);
    }
    curl_easy_setopt(l->easy, CURLOPT_CUSTOMREQUEST, method);
    return curl_easy_perform(l->easy) == CURLE_OK;
}

static bool put(struct line *l, const char *what)
{
    char path[160];
    (void)snprintf(path, sizeof path, "/kv/bench/one?%s=%s", what, l->session);
    return ask(l, "PUT", path, "me") && strncmp(l->answer, "true", 4) == 0;
}

static bool acquire(void *arg)
{
    struct line *l = arg;
    return put(l, "acquire") && (!l->token || ask(l, "GET", "/kv/bench/one", NULL));
}

static bool release(void *arg)
{
    return put(arg, "release");
}

int main(int argc, char **argv)
{
    struct line l = {.easy = curl_easy_init()};
    bool fine = argc == 4 && l.easy != NULL;
    if (fine) {
        (void)snprintf(l.base, sizeof l.base, "http://%s/v1", argv[1]);
        l.token = strcmp(argv[2], "token") == 0;
        curl_easy_setopt(l.easy, CURLOPT_WRITEFUNCTION, take);
        curl_easy_setopt(l.easy, CURLOPT_WRITEDATA, &l);
        fine = ask(&l, "PUT", "/session/create", "{\"TTL\":\"60s\"}") &&
               sscanf(l.answer, "{\"ID\":\"%63[^\"]", l.session) == 1;
    }
    if (!fine || !series_run(strtod(argv[3], NULL), acquire, release, &l)) {
        (void)fprintf(stderr, "consul-pairs HOST:PORT plain|token SECONDS: failed\n");
        return 1;
    }
    return 0;
}
