/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/errors.h"
#include "cli/sim.h"
#include "sim/export.h"

enum { PICTURE_WIDTH = 960 };

/* What must be hit, as the words change the script. */
struct expectation {
    bool said;
    uint32_t mask;
};

static int read_script(const char *file, struct pk_script *out)
{
    struct pk_script_error e;
    size_t len;
    char *text = pk_sim_load(file, &len);
    if (text == NULL) {
        return PK_EXIT_ERROR;
    }
    bool fine = pk_script_read(text, len, out, &e);
    free(text);
    const char *name = strcmp(file, "-") == 0 ? "standard input" : file;
    return fine ? 0 : pk_errors_fail("%s:%" PRIu32 ": %s", name, e.line, e.text);
}

/* Puts flavour and fence of the command line in, and says what is expected then. */
static int adapt(const struct pk_sim_words *words, struct pk_script *s,
                 struct expectation *e)
{
    bool same_flavour =
        words->flavour_word == NULL || words->flavour == s->config.flavour;
    bool same_fence = words->fence_word == NULL || words->fence == s->config.fence;
    bool fenced = words->fence_word != NULL && words->fence == PK_PROTECT_CLAIM;
    if (same_flavour && same_fence) {
        *e = (struct expectation){s->expects, s->expect};
    } else if (same_flavour && fenced) {
        *e = (struct expectation){s->expects_fenced, s->expect_fenced};
    }
    s->config.flavour = words->flavour_word != NULL ? words->flavour : s->config.flavour;
    s->config.fence = words->fence_word != NULL ? words->fence : s->config.fence;
    s->expects = e->said;
    s->expect = e->mask;
    for (uint32_t i = 0; i < s->n_acts; i++) {
        const char *wrong = pk_world_act_wrong(&s->config, &s->acts[i]);
        if (wrong != NULL) {
            return pk_errors_fail("sim: %s can't be played as %s: %s", words->file,
                                  pk_flavour_name(s->config.flavour), wrong);
        }
    }
    return 0;
}

/* ---- in words ---- */

static void say_checks(struct pk_prose *out, const char *before, uint32_t mask)
{
    pk_prose_add(out, before);
    pk_export_checks(mask, out);
}

static void say_setting(const struct pk_script *s, const struct pk_world *w,
                        struct pk_prose *out)
{
    uint32_t count;
    (void)pk_world_trace(w, &count);
    if (s->title[0] != '\0') {
        pk_prose_add(out, s->title);
        pk_prose_add(out, "\n");
    }
    pk_prose_add(out, pk_flavour_name(s->config.flavour));
    pk_prose_add(out, s->config.flavour == PK_FLAVOUR_PICKET ? "" : " (a model)");
    pk_prose_add(out, ", fence ");
    pk_prose_add(out, pk_protection_name(s->config.fence));
    pk_prose_add(out, ", TTL ");
    pk_prose_seconds(out, (int64_t)s->config.ttl_us);
    pk_prose_add(out, " s: ");
    pk_prose_number(out, s->n_acts);
    pk_prose_add(out, " acts, ");
    pk_prose_seconds(out, (int64_t)s->until_us);
    pk_prose_add(out, " s, ");
    pk_prose_number(out, count);
    pk_prose_add(out, " records\n");
}

static void say_hits(const struct pk_checker *c, struct pk_prose *out)
{
    uint32_t mask = pk_checker_mask(c);
    if (mask == 0) {
        pk_prose_add(out, "\nNothing broke.\n");
        return;
    }
    uint64_t all = 0;
    say_checks(out, "\nBroken: ", mask);
    pk_prose_add(out, "\n");
    for (uint32_t i = 0; i < PK_CHECK_COUNT; i++) {
        all += c->counts[i];
    }
    for (uint32_t i = 0; i < c->n_hits; i++) {
        pk_prose_add(out, "  ");
        pk_prose_add(out, pk_check_name(c->hits[i].check));
        pk_prose_add(out, ": ");
        pk_hit_explain(&c->hits[i], out);
        pk_prose_add(out, "\n");
    }
    if (all > c->n_hits) {
        pk_prose_add(out, "  and ");
        pk_prose_number(out, all - c->n_hits);
        pk_prose_add(out, " more\n");
    }
}

static void say_counts(const struct pk_world *w, struct pk_prose *out)
{
    struct pk_world_view v;
    pk_world_view(w, &v);
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {{"\ncounter ", v.counter},
                  {", writes accepted ", v.accepted},
                  {", calls rejected ", v.rejected},
                  {", fence at ", v.fence}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        pk_prose_add(out, counts[i].name);
        pk_prose_number(out, counts[i].value);
    }
    pk_prose_add(out, ", digest ");
    pk_prose_hex(out, pk_world_digest(w));
    pk_prose_add(out, "\n");
}

static void say_verdict(const struct expectation *e, uint32_t mask, struct pk_prose *out)
{
    if (e->said && mask == e->mask) {
        pk_prose_add(out, "As expected.\n");
    } else if (e->said) {
        say_checks(out, "NOT as expected, which is: ", e->mask);
        pk_prose_add(out, "\n");
    } else if (mask != 0) {
        pk_prose_add(out, "The script does not say what to expect here, so this counts "
                          "as a failure.\n");
    }
}

/* ---- all of it ---- */

static int save_files(const struct pk_sim_words *words, const struct pk_script *s,
                      const struct pk_world *w, const struct pk_checker *c)
{
    int code = 0;
    struct pk_prose out = {0};
    if (words->svg != NULL) {
        pk_export_picture(s, w, c, PICTURE_WIDTH, &out);
        code = pk_sim_save(words->svg, &out);
        pk_prose_free(&out);
    }
    if (code == 0 && words->json != NULL) {
        pk_export_json(s, w, c, &out);
        code = pk_sim_save(words->json, &out);
        pk_prose_free(&out);
    }
    return code;
}

static int play(const struct pk_sim_words *words, const struct pk_script *s,
                const struct expectation *e)
{
    struct pk_checker checker;
    struct pk_world *w = pk_script_run(s, &checker);
    uint32_t mask = pk_checker_mask(&checker);
    struct pk_prose out = {0};
    say_setting(s, w, &out);
    say_hits(&checker, &out);
    say_counts(w, &out);
    say_verdict(e, mask, &out);
    if (words->link) {
        pk_prose_add(&out, "simulator.html#");
        pk_script_link(s, &out);
        pk_prose_add(&out, "\n");
    }
    bool to_stdout = (words->json != NULL && strcmp(words->json, "-") == 0) ||
                     (words->svg != NULL && strcmp(words->svg, "-") == 0);
    if (!to_stdout && !pk_errors_quiet()) {
        (void)fwrite(out.data, 1, out.len, stdout);
    }
    pk_prose_free(&out);
    int code = save_files(words, s, w, &checker);
    if (code == 0 && pk_world_full(w)) {
        code = pk_errors_fail("sim: %s: more than %d records; what comes later was not "
                              "played",
                              words->file, PK_TRACE_MAX);
    }
    pk_world_free(w);
    return code != 0 ? code : mask == e->mask ? 0 : PK_EXIT_NO;
}

int pk_sim_run(const struct pk_sim_words *words)
{
    struct pk_script s;
    struct expectation e = {0};
    int code = read_script(words->file, &s);
    if (code != 0) {
        return code;
    }
    code = adapt(words, &s, &e);
    if (code == 0) {
        code = play(words, &s, &e);
    }
    pk_script_free(&s);
    return code;
}
