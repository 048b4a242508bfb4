/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a Lua script. Bringing it to its normal form must end, stay within its
 * buffer and give plain text; comments before and after must not change what comes out;
 * what is known must be a meaning that makes sense.
 */
#include <stdio.h>
#include <stdlib.h>

#include "server/script.h"

static void demand(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

static size_t form_of(const void *data, size_t size, char *out)
{
    size_t len = pk_script_normalise(pk_bytes(data, size), out);
    demand(len <= PK_SCRIPT_FORM_MAX, "longer than its buffer");
    for (size_t i = 0; i < len; i++) {
        demand(out[i] >= ' ' && out[i] < 0x7f, "a form that is not plain text");
    }
    return len;
}

static void same_with_comments(const uint8_t *data, size_t size, const char *form,
                               size_t len)
{
    static const char head[] = "--[=[ ]] ]=] ";
    static const char tail[] = "\n-- end";
    static char text[PK_SCRIPT_BYTES_MAX];
    char other[PK_SCRIPT_FORM_MAX];
    size_t whole = sizeof head - 1 + size + sizeof tail - 1;
    if (whole > sizeof text) {
        return;
    }
    memcpy(text, head, sizeof head - 1);
    memcpy(text + sizeof head - 1, data, size);
    memcpy(text + sizeof head - 1 + size, tail, sizeof tail - 1);
    size_t other_len = form_of(text, whole, other);
    demand(other_len == len && memcmp(other, form, len) == 0, "comments change the form");
}

static void sensible(const struct pk_script *s)
{
    bool drops = s->act == PK_SCRIPT_DROP;
    demand(s->act <= PK_SCRIPT_DROP && s->yes <= PK_SCRIPT_COUNT, "no such act or yes");
    demand(s->no <= PK_SCRIPT_MINUS, "no such no");
    demand(s->value_arg >= 1 && s->value_arg <= 2, "a strange value");
    demand(drops == (s->ttl_arg == 0),
           "a TTL where none belongs, or the other way round");
    demand(s->all_keys == (s->yes == PK_SCRIPT_COUNT), "counts what is not counted");
    demand(s->db_arg == 0 || s->all_keys, "selects where nothing known does");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct pk_scripts seen;
    char form[PK_SCRIPT_FORM_MAX];
    unsigned char digest[PK_SCRIPT_DIGEST];
    struct pk_script meaning;
    if (size > 2 * PK_SCRIPT_BYTES_MAX) {
        return 0;
    }
    size_t len = form_of(data, size, form);
    same_with_comments(data, size, form, len);
    bool known = pk_script_meaning(pk_bytes(data, size), &meaning);
    if (known) {
        demand(len > 0, "a meaning without a form");
        sensible(&meaning);
    }
    const struct pk_script *learnt =
        pk_scripts_learn(&seen, pk_bytes(data, size), digest);
    demand((learnt != NULL) == known, "learnt is not what is known");
    demand(!known || pk_scripts_find(&seen, digest) == learnt, "learnt and not found");
    return 0;
}
